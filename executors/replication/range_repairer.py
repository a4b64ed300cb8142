"""The repair of damaged ranges of this broker's logs with the bytes of other replicas.

Owns: what happens to a range that no replica can repair.  Must not know how damage is found
(``log_scrubber``), how another replica is read (``replica_reads``), or which bytes fit
(``log/range_repair.py``).
"""

import logging
from functools import partial

from sparklog.client.connection import Connection
from sparklog.errors import (
    ConnectError,
    DamagedLogError,
    DecodeError,
    ErrorCode,
    KafkaError,
    ProtocolError,
    StorageError,
)
from sparklog.executors.log import (
    DamagedRange,
    DamagedSourceError,
    RangeRepair,
    Segment,
    Steps,
    UnfitBatchError,
    write_pieces,
)
from sparklog.executors.partition import Partition
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.executors.replication.replica_reads import ANSWER_TIMEOUT_S, ReplicaReads, fetch
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.private import ReportDamageRequest

logger = logging.getLogger(__name__)


class RangeRepairer:
    """Repairs the damaged ranges of one broker's logs."""

    def __init__(self, tools: FetcherTools) -> None:
        self._reads = ReplicaReads(tools)
        self._replica_manager = tools.replica_manager

    async def repair(self, partition: Partition, segment: Segment, damaged: DamagedRange) -> bool:
        """Repair a range; return whether the range is now sound or deleted.

        A range that no replica could repair is added to ``log.damage.unrepairable``.
        """
        log, tp = partition.log, partition.topic_partition
        rest: DamagedRange | None = damaged
        for broker_id in self._reads.sources(partition):
            while rest is not None and self._is_there(partition, segment, rest):
                try:
                    rest = await self._repair_from(broker_id, partition, segment, rest)
                except (ConnectError, ProtocolError, DecodeError, KafkaError) as error:
                    logger.info("broker %d cannot repair %s: %s", broker_id, tp, error)
                    break
                except DamagedSourceError as error:
                    logger.warning("the replica of %s on broker %d: %s", tp, broker_id, error)
                    break
                except UnfitBatchError as error:
                    if self._give_up(partition, broker_id, error):
                        return False
                    break
                except StorageError as error:
                    if rest is None or not self._is_there(partition, segment, rest):
                        return True  # retention took the file meanwhile
                    self._replica_manager.fail_log(tp, error)
                    return False
                if rest is None:
                    logger.warning(
                        "%s: offsets %d to %d of %s were damaged and are repaired with the bytes "
                        "of broker %d",
                        tp, damaged.first_offset, damaged.end_offset - 1, segment.log_path,
                        broker_id,
                    )  # fmt: skip
                    self._replica_manager.counters.damaged_ranges_mended += 1
                    self._replica_manager.delayed_operations.complete_all(tp)
                    return True
        if rest is None or not self._is_there(partition, segment, rest):
            return True
        if partition.state is not None and rest not in log.damage.unrepairable:
            log.damage.unrepairable.add(rest)
            logger.error(
                "%s: no other replica has the bytes of the damaged offsets %d to %d of %s: reads "
                "of them are refused, everything else goes on",
                tp, rest.first_offset, rest.end_offset - 1, segment.log_path,
            )  # fmt: skip
        return False

    def _is_there(self, partition: Partition, segment: Segment, damaged: DamagedRange) -> bool:
        """Whether the range is still part of an open log."""
        log = partition.log
        return (
            self._replica_manager.get(partition.topic_partition) is partition
            and log.offline is None
            and log.damage.holds(segment)
            and damaged in segment.damaged
            and damaged.end_offset > log.local_log_start_offset
        )

    async def _repair_from(
        self, broker_id: int, partition: Partition, segment: Segment, damaged: DamagedRange
    ) -> DamagedRange | None:
        """Repair the start of a range, or all of it; return the rest.

        Raises the errors that ``repair`` handles, and KafkaError when the broker has too little.
        """
        compacted = _may_have_gaps(partition)
        repair = RangeRepair(damaged, partition.log.leader_epochs.entries, compacted=compacted)
        connection = await self._reads.connect(broker_id)
        try:
            while not repair.part_due:
                # No reader may read below the start, and the batch there may begin earlier.
                offset = max(repair.next_offset, partition.log.local_log_start_offset)
                records = records_view((await fetch(connection, partition, offset)).records)
                try:
                    took = repair.take(records)
                except DamagedSourceError:
                    await _report(connection, partition, repair.next_offset)
                    raise
                if not took:
                    raise KafkaError(
                        ErrorCode.OFFSET_NOT_AVAILABLE,
                        f"broker {broker_id} has nothing at offset {repair.next_offset} yet",
                    )
        finally:
            connection.close()
        work = self._write(partition, segment, repair)
        return await self._replica_manager.log_workers.run(partition.topic_partition, work)

    def _write(
        self, partition: Partition, segment: Segment, repair: RangeRepair
    ) -> Steps[DamagedRange | None]:
        """Write the repaired bytes; nothing else works on the log meanwhile."""
        damaged, log = repair.damaged, partition.log
        if not self._is_there(partition, segment, damaged):
            return None
        epochs = log.leader_epochs.entries
        files, pieces = segment.files_at_rest(), tuple(repair.pieces)
        compacted = _may_have_gaps(partition)
        replaced: int = yield partial(write_pieces, files, pieces, epochs, compacted=compacted)
        rest = repair.rest()
        if damaged in segment.damaged:
            log.damage.replace(segment, damaged, rest)
        self._replica_manager.counters.damaged_bytes_mended += replaced
        return rest

    def _give_up(self, partition: Partition, broker_id: int, error: UnfitBatchError) -> bool:
        """Fail this log, because the batches of a sound replica in the ISR do not fit it.

        The log is then copied again from the leader, which is also how a damaged log is repaired
        whose replicas were cleaned differently.
        Returns False when that replica is not in the ISR, so that it may be the wrong one.
        """
        state, tp = partition.state, partition.topic_partition
        logger.error("%s cannot be repaired with the bytes of broker %d: %s", tp, broker_id, error)
        if state is None or broker_id not in state.isr:
            return False
        text = f"{tp} is damaged and cannot be repaired: {error}"
        self._replica_manager.fail_log(tp, DamagedLogError(text))
        return True


def _may_have_gaps(partition: Partition) -> bool:
    """Whether batches may be missing, here or in the log of another replica.

    A topic that is not compacted any more still has its gaps; and while it is compacted, another
    replica may have been cleaned before this one.
    """
    return partition.log.gaps.is_set or partition.config.compacts


async def _report(connection: Connection, partition: Partition, offset: int) -> None:
    """Have a broker check its own replica."""
    report = ReportDamageRequest(
        topic_id=partition.topic_id,
        partition=partition.topic_partition.partition,
        offset=offset,
    )
    await connection.request(report, timeout_s=ANSWER_TIMEOUT_S)
