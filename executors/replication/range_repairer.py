"""The repair of damaged ranges of this broker's logs with the bytes of other replicas.

Owns: which replicas are asked, in which order, and what happens to a range that no replica can
repair.  Must not know how damage is found (``log_scrubber``), or which bytes fit
(``log/range_repair.py``).

The repair reads another replica as a consumer does: below the high watermark, from the leader or
from a follower (KIP-392), fenced by the leader epoch.  Such a read says nothing about this broker's
own log, so it does not change the ISR.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

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
from sparklog.types import NO_NODE
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.fetch import decode_fetch_response, records_view
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.private import ReportDamageRequest

#: Bytes of one fetch; a larger batch is returned nevertheless.
FETCH_BYTES: Final = 1 << 20
#: Timeout of one request to another replica, in seconds.
ANSWER_TIMEOUT_S: Final = 5.0

logger = logging.getLogger(__name__)


class RangeRepairer:
    """Repairs the damaged ranges of one broker's logs."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools
        self._replica_manager = tools.replica_manager

    async def repair(self, partition: Partition, segment: Segment, damaged: DamagedRange) -> bool:
        """Repair a range; return whether the range is now sound or deleted.

        A range that no replica could repair is added to ``log.damage.unrepairable``.
        """
        log, tp = partition.log, partition.topic_partition
        rest: DamagedRange | None = damaged
        for broker_id in self._source_replicas(partition):
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

    def _source_replicas(self, partition: Partition) -> Iterator[int]:
        """Other live brokers with a replica: the leader, the ISR, then the others."""
        state, own = partition.state, partition.node_id
        if state is None:
            return
        for broker_id in dict.fromkeys((state.leader, *state.isr, *state.replicas)):
            if broker_id not in (own, NO_NODE) and self._replica_manager.image.is_alive(broker_id):
                yield broker_id

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
        broker = self._tools.broker(broker_id)
        if broker is None or not broker.registered:
            raise ConnectError(f"it is not known where broker {broker_id} listens")
        compacted = _may_have_gaps(partition)
        repair = RangeRepair(damaged, partition.log.leader_epochs.entries, compacted=compacted)
        connection = await self._tools.connect(broker.endpoint)
        try:
            while not repair.part_due:
                # No reader may read below the start, and the batch there may begin earlier.
                offset = max(repair.next_offset, partition.log.local_log_start_offset)
                records = await _fetch(connection, partition, offset)
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


async def _fetch(connection: Connection, partition: Partition, offset: int) -> memoryview:
    """Fetch whole batches, from the batch that holds ``offset`` on.  Raises KafkaError."""
    part = FetchPartition(
        partition=partition.topic_partition.partition,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES,
    )
    topic = FetchTopic(topic_id=partition.topic_id, partitions=(part,))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=FETCH_BYTES, topics=(topic,))
    version = connection.version_for(FetchRequest)
    correlation_id = connection.next_correlation_id()
    payload = encode_request(request, version, correlation_id, connection.client_id)
    answer = await connection.exchange(FetchRequest.API_KEY, (payload,), timeout_s=ANSWER_TIMEOUT_S)
    answered_id, response = decode_fetch_response(version, answer)
    connection.check_correlation(correlation_id, answered_id)
    _check(response.error_code)
    for each in response.responses:
        for data in each.partitions:
            _check(data.error_code)
            return records_view(data.records)
    return memoryview(b"")


async def _report(connection: Connection, partition: Partition, offset: int) -> None:
    """Have a broker check its own replica."""
    report = ReportDamageRequest(
        topic_id=partition.topic_id,
        partition=partition.topic_partition.partition,
        offset=offset,
    )
    await connection.request(report, timeout_s=ANSWER_TIMEOUT_S)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), "the fetch was refused")
