"""Reads of records that are only in the bucket, for the fetches of clients (``RemoteReads``).

Owns: the reads that are on their way, and the records that have come and are waited for.  Must not
know requests, or how the bucket is read.

A fetch never waits for the bucket on the event loop: it finds the records, or it is checked again
when they have come.  Clients read on, so the records that follow are fetched before they are asked
for.  Several fetches at one offset share a read.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import RemoteRecords
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.record_region import BytesRegion, whole_batches
from sparklog.executors.tiering.remote_log_manager import remote_partition
from sparklog.executors.tiering.remote_process import RemoteLogs
from sparklog.remote_log.reading import RemoteRead
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import NO_OFFSET, OffsetTimestamp, TopicPartition

#: Bytes of one read; a larger batch comes nevertheless.
READ_BYTES: Final = 1024 * 1024
#: Bytes of records that have come and are kept for the fetches that wait for them.
KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
#: Reads that are made ahead of a client, one after the other.
AHEAD_MAX: Final = 2
#: Reads on their way, the ones that nobody waits for yet included.
READS_MAX: Final = 16
#: Errors that are kept for the fetches that wait for them.
ERRORS_MAX: Final = 1000

logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """The place of a read.

    Another topic of the name has another partition.  After an unclean election other records may
    have the offset, so the reads of each leader epoch are its own.
    """

    partition: Partition
    leader_epoch: int
    offset: int
    with_aborted: bool


class RemoteFetches:
    """The remote reads of one broker.

    Args:
        remote: calls of the remote logs.
        records_arrived: checks the delayed fetches of a partition.
    """

    def __init__(
        self,
        remote: RemoteLogs,
        records_arrived: Callable[[TopicPartition], None],
        metrics: TieringMetrics,
    ) -> None:
        self._remote = remote
        self._records_arrived = records_arrived
        self._metrics = metrics
        self._running: dict[_Key, asyncio.Task[None]] = {}
        #: Records that have come, the least recently used first, and their bytes.
        self._kept: OrderedDict[_Key, RemoteRead] = OrderedDict()
        self._kept_bytes = 0
        self._errors: OrderedDict[_Key, KafkaError] = OrderedDict()

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, with_aborted: bool
    ) -> RemoteRecords | None:
        """See ``RemoteReads``."""
        key = _Key(partition, partition.leader_epoch, offset, with_aborted)
        error = self._errors.pop(key, None)
        if error is not None:
            raise error
        found = self._find(key)
        if found is None:
            self._begin(key, AHEAD_MAX)
            return None
        self._kept.move_to_end(found)
        read = self._kept[found]
        data, next_offset = whole_batches(read.data, offset, max_bytes)
        self._begin_ahead(key._replace(offset=next_offset), AHEAD_MAX)
        return RemoteRecords(
            BytesRegion(data),
            tuple(
                AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, NO_OFFSET)
                for txn in read.aborted
                if txn.first_offset < next_offset and txn.last_offset >= offset
            ),
        )

    def _find(self, key: _Key) -> _Key | None:
        """The place of the kept read that has the offset; few reads are kept."""
        if key in self._kept:
            return key
        for place, read in self._kept.items():
            is_same = place._replace(offset=key.offset) == key
            if is_same and read.first_offset <= key.offset < read.next_offset:
                return place
        return None

    async def find_timestamp(self, partition: Partition, timestamp: int) -> OffsetTimestamp | None:
        """See ``RemoteReads``."""
        try:
            found: OffsetTimestamp | None = await self._remote.call(
                "find_timestamp",
                remote_partition(partition),
                timestamp,
                partition.log.log_start_offset,
            )
        except SparklogError as error:
            raise _kafka_error(partition, error) from error
        return found

    async def signed_segments(
        self, partition: Partition, start: int, end: int, *, seconds: int, count_max: int
    ) -> Sequence[SignedSegment]:
        """See ``RemoteReads``."""
        try:
            found: Sequence[SignedSegment] = await self._remote.call(
                "signed_segments",
                remote_partition(partition),
                start,
                end,
                seconds=seconds,
                count_max=count_max,
            )
        except SparklogError as error:
            raise _kafka_error(partition, error) from error
        return found

    async def close(self) -> None:
        """End the reads that are on their way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()
        self._kept_bytes = 0

    def _begin(self, key: _Key, ahead: int) -> None:
        """Begin a read, unless it is on its way or too many are; a later fetch asks again.

        ``ahead`` is how many reads follow it.
        """
        if key not in self._running and len(self._running) < READS_MAX:
            self._running[key] = asyncio.get_running_loop().create_task(self._read(key, ahead))

    def _begin_ahead(self, key: _Key, ahead: int) -> None:
        """Begin the reads that a client asks for next, as far as they are in the bucket only."""
        while ahead > 0 and key.offset < key.partition.log.local_log_start_offset:
            found = self._find(key)
            ahead -= 1
            if found is None:
                self._begin(key, ahead)
                return
            key = key._replace(offset=self._kept[found].next_offset)

    async def _read(self, key: _Key, ahead: int) -> None:
        tp = key.partition.topic_partition
        try:
            found: RemoteRead = await self._remote.call(
                "read",
                remote_partition(key.partition),
                key.offset,
                READ_BYTES,
                with_aborted=key.with_aborted,
                leader_epoch=key.leader_epoch,
            )
        except SparklogError as error:
            self._metrics.read_failures += 1
            self._errors[key] = _kafka_error(key.partition, error)
            while len(self._errors) > ERRORS_MAX:
                self._errors.popitem(last=False)
        else:
            self._metrics.reads += 1
            self._metrics.bytes_read += len(found.data)
            self._keep(key, found)
            self._begin_ahead(key._replace(offset=found.next_offset), ahead)
        finally:
            del self._running[key]
        self._records_arrived(tp)

    def _keep(self, key: _Key, found: RemoteRead) -> None:
        self._kept[key] = found
        self._kept_bytes += len(found.data)
        while self._kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped.data)


def _kafka_error(partition: Partition, error: SparklogError) -> KafkaError:
    # The log says that the records are there: OFFSET_OUT_OF_RANGE would make a client skip them.
    if isinstance(error, KafkaError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return error
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{partition.topic_partition} cannot be read from the remote_dir: {error}",
    )
