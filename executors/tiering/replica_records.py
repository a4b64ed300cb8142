"""Records below the local log start from the files of other replicas, where the bucket is damaged.

Owns: which replicas are asked, and what of an answer is taken.  Must not know how another broker
is asked, or how damage was found.

Local retention runs at each replica, so another one may still have files with the records.  Leader
epoch and offset identify a batch: the batches are taken whose checksums hold, which follow one
another from the wanted offset on, and whose leader epochs are those that this broker's log
remembers for their offsets.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from sparklog.errors import (
    ConnectError,
    DecodeError,
    ErrorCode,
    KafkaError,
    ProtocolError,
)
from sparklog.executors.partition import Partition
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.reading import RemoteRead
from sparklog.types import Isolation
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.messages.fetch import PartitionData
from sparklog.wire.records.batch import BatchHeader, check_batch, iter_batches

#: Objects whose damage is remembered, so that it is logged once.
TOLD_MAX = 1_000

logger = logging.getLogger(__name__)


class ReadReplica(Protocol):
    """One fetch from another replica.

    Raises ConnectError, ProtocolError, DecodeError, KafkaError.
    """

    def __call__(
        self, broker_id: int, partition: Partition, offset: int, isolation: Isolation
    ) -> Awaitable[PartitionData]: ...


class ReplicaRecords:
    """The records that one broker takes from other replicas.

    Args:
        read: reads another replica.
        sources: the brokers with other replicas, the best first.
    """

    def __init__(self, read: ReadReplica, sources: Callable[[Partition], Iterator[int]]) -> None:
        self._read = read
        self._sources = sources
        self._told: set[str] = set()

    async def find(
        self, partition: Partition, offset: int, damage: DamagedObjectError, *, with_aborted: bool
    ) -> RemoteRead | None:
        """The batches from ``offset`` on that another replica has in its files, at least one.

        None if no replica has them.  A replica that does not have them in its files looks into the
        bucket itself, and asks no other one.
        """
        isolation = Isolation.READ_COMMITTED if with_aborted else Isolation.READ_UNCOMMITTED
        for broker_id in self._sources(partition):
            try:
                data = await self._read(broker_id, partition, offset, isolation)
                found = take(partition, offset, data)
            except (ConnectError, ProtocolError, DecodeError, KafkaError) as error:
                logger.info("broker %d has no records for %s: %s", broker_id, partition, error)
                continue
            self._tell(partition, broker_id, damage)
            return found
        return None

    def _tell(self, partition: Partition, broker_id: int, damage: DamagedObjectError) -> None:
        """Log the damage, once for each object."""
        if damage.path in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(damage.path)
        logger.warning(
            "%s: records come from the files of broker %d, because the remote_dir is damaged; put "
            "the object back before local retention deletes these files: %s",
            partition.topic_partition,
            broker_id,
            damage,
        )


async def no_replica_records(
    partition: Partition, offset: int, damage: DamagedObjectError, *, with_aborted: bool
) -> RemoteRead | None:
    """The ``find`` of a broker that asks nobody."""
    del partition, offset, damage, with_aborted
    return None


def take(partition: Partition, offset: int, data: PartitionData) -> RemoteRead:
    """The batches of an answer that are those of this broker's log.

    Raises KafkaError, DecodeError: the first batch is missing, damaged, or another one.
    """
    log, records = partition.log, records_view(data.records)
    first, following, end = offset, offset, 0
    markers: list[BatchHeader] = []
    for header, start in iter_batches(records, partial_tail=True):
        epoch = log.leader_epochs.epoch_at(header.last_offset)
        follows = header.base_offset == following
        if not end:
            first, follows = header.base_offset, header.base_offset <= offset <= header.last_offset
        elif header.base_offset >= log.local_log_start_offset:
            break
        check_batch(records, start, header)
        if not follows or header.partition_leader_epoch != epoch:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch with base offset {header.base_offset} of leader epoch "
                f"{header.partition_leader_epoch} came where offset {following} of epoch {epoch} "
                "is due",
            )
        following, end = header.next_offset, start + header.size
        if header.is_control:
            markers.append(header)
    if not end:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"it has no batch with offset {offset}")
    return RemoteRead(bytes(records[:end]), first, following, _aborted(data, markers, following))


def _aborted(
    data: PartitionData, markers: list[BatchHeader], end: int
) -> tuple[RemoteAbortedTxn, ...]:
    """The aborted transactions of an answer.  Those without a marker in it end behind it."""
    return tuple(
        RemoteAbortedTxn(
            each.producer_id,
            each.first_offset,
            next(
                (
                    marker.base_offset
                    for marker in markers
                    if marker.producer_id == each.producer_id
                    and marker.base_offset > each.first_offset
                ),
                end,
            ),
        )
        for each in data.aborted_transactions or ()
        if each.first_offset < end
    )
