"""Reads of records that are only in the bucket, for the fetches of clients (``RemoteReads``).

Owns: the reads that are on their way, and the records that have come and are waited for.  Must not
know requests, or how the bucket or another replica is read.

A fetch never waits for the bucket on the event loop: it finds the records, or it is checked again
when they have come.  Clients read on, so the records that follow are fetched before they are asked
for.  Several fetches at one offset share a read.  Reads that fetches wait for are made in the order
in which they were asked for, and before reads ahead.  While the limit of the rate is exceeded no
read begins (``fetch_quota``): a fetch whose time is over has no records then, and asks again.

Records stay in the files of the cache, if there is one, and are sent from there.  A file may be
gone before it is opened here; then the records come once more, as bytes.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from sparklog.errors import ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import RemoteRecords
from sparklog.executors.tiering.fetch_quota import FetchQuota
from sparklog.executors.tiering.leadership import remote_partition
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.record_region import MemoryPlace, Place, find_place, whole_batches
from sparklog.executors.tiering.remote_process import OpenFile, RemoteLogs
from sparklog.executors.tiering.replica_records import no_replica_records
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.reading import RemoteRead
from sparklog.remote_log.remote_segment import TimeBounds
from sparklog.remote_log.signed_segments import SignedPage
from sparklog.types import MAX_INT64, NO_OFFSET, OffsetTimestamp, TopicPartition

#: Bytes of one read; a larger batch comes nevertheless.
READ_BYTES: Final = 1024 * 1024
#: Reads that have come and are kept for the fetches that wait for them, and bytes of those that are
#: in memory.  A kept read holds one or two chunks of the cache open, evicted ones too.
KEPT_MAX: Final = 64
KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
#: How often in a row a kept read is sent from one offset.  Its file may have gone bad, which only
#: its client finds out, and asks for the same offset again; the next read checks the file.
SENT_MAX: Final = 16
#: Reads ahead of a client, and how many of them are made with one call: in memory, and in files.
AHEAD_IN_MEMORY: Final = (2, 1)
AHEAD_IN_FILES: Final = (16, 4)
#: Calls on their way, and those of them that were begun before anybody waited for them.
CALLS_MAX: Final = 16
AHEAD_CALLS_MAX: Final = CALLS_MAX // 2
#: Reads that wait for one of these calls to end; a fetch that finds more of them asks again later.
WAITING_MAX: Final = 1000
#: Errors that are kept for the fetches that wait for them.
ERRORS_MAX: Final = 1000

logger = logging.getLogger(__name__)


class FindElsewhere(Protocol):
    """See ``ReplicaRecords.find``."""

    def __call__(
        self, partition: Partition, offset: int, damage: DamagedObjectError, *, with_aborted: bool
    ) -> Awaitable[RemoteRead | None]: ...


class _Key(NamedTuple):
    """The place of a read.

    Another topic of the name has another partition.  After an unclean election other records may
    have the offset, so the reads of each leader epoch are its own, and so are those that a follower
    has made before its log was truncated in that epoch (``generation``).

    ``asks_others``: whether other replicas are asked where the bucket is damaged.  They are not
    asked for another replica, so that no two replicas ask each other for ever.
    """

    partition: Partition
    leader_epoch: int
    generation: int
    offset: int
    with_aborted: bool
    asks_others: bool


@dataclass(slots=True)
class _Kept:
    """A read that has come, where its batches are, and from which offset it was sent last.

    ``sent`` is how often in a row it was sent from there.
    """

    read: RemoteRead
    place: Place
    asked_offset: int = NO_OFFSET
    sent: int = 0

    def is_stuck_at(self, offset: int) -> bool:
        """Count a send from this offset; whether there were SENT_MAX of them before it."""
        if offset != self.asked_offset:
            self.asked_offset, self.sent = offset, 0
        self.sent += 1
        return self.sent > SENT_MAX


class RemoteFetches:
    """The remote reads of one broker.

    Args:
        remote: calls of the remote logs.
        records_arrived: checks the delayed fetches of a partition.
        open_file: opens a file of the cache; None if there is no cache.
        is_hosted: whether a partition has not been closed.
        tell_damage: logs damage in the bucket, which clients are told the code of only.
        find_elsewhere: the records from an offset on that another replica has in its files, where
            the bucket is damaged.
        quota: the limit of the rate of reads; None for no limit.
    """

    def __init__(
        self,
        remote: RemoteLogs,
        records_arrived: Callable[[TopicPartition], None],
        metrics: TieringMetrics,
        *,
        open_file: OpenFile | None = None,
        is_hosted: Callable[[Partition], bool] = lambda partition: True,
        tell_damage: Callable[[TopicPartition, KafkaError], None] = lambda tp, error: None,
        find_elsewhere: FindElsewhere = no_replica_records,
        quota: FetchQuota | None = None,
    ) -> None:
        self._remote = remote
        self._open_file = open_file
        #: Whether the last records came in files.
        self._in_files = open_file is not None
        self._records_arrived = records_arrived
        self._metrics = metrics
        self._is_hosted = is_hosted
        self._tell_damage = tell_damage
        self._find_elsewhere = find_elsewhere
        self._quota = quota or FetchQuota()
        self._quota_timer = _Timer(self._begin_next)
        self._running: dict[_Key, asyncio.Task[None]] = {}
        #: Of the calls that are running, those that nobody waited for when they began.
        self._ahead: set[_Key] = set()
        #: Reads that fetches wait for, in that order, until a call may begin; and since when they
        #: wait for the quota (ms), if they do.
        self._waiting: dict[_Key, int | None] = {}
        #: Records that have come, in that order, and their bytes in memory.  What was sent is older
        #: than what was read ahead, so it goes first.
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._kept_bytes = 0
        #: How many of them each partition has.
        self._kept_of: Counter[Partition] = Counter()
        self._errors: OrderedDict[_Key, KafkaError] = OrderedDict()

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int = MAX_INT64,
        with_aborted: bool,
        for_replica: bool = False,
    ) -> RemoteRecords | None:
        """See ``RemoteReads``."""
        key = _Key(
            partition,
            partition.leader_epoch,
            partition.log.generation,
            offset,
            with_aborted,
            asks_others=not for_replica,
        )
        error = self._errors.pop(key, None)
        if error is not None:
            raise error
        found = self._find(key)
        if found is not None and self._kept[found].is_stuck_at(offset):
            self._drop(found)
            found = None
        if found is None:
            self._begin_waited_for(key)
            return None
        self._waiting.pop(key, None)
        kept = self._kept[found]
        read, place = kept.read, kept.place
        try:
            is_whole = offset == read.first_offset and read.next_offset <= end_offset
            if is_whole and place.size <= max_bytes:
                start, stop, next_offset = 0, place.size, read.next_offset
            else:
                start, stop, next_offset = whole_batches(place, offset, max_bytes, end_offset)
            region = place.region(start, stop)
        except SparklogError as file_error:
            self._drop(found)
            raise self._refusal(partition, file_error) from file_error
        self._begin_ahead(key._replace(offset=next_offset), self._window()[0])
        return RemoteRecords(
            region,
            tuple(
                AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, NO_OFFSET)
                for txn in read.aborted
                if txn.first_offset < next_offset and txn.last_offset >= offset
            ),
        )

    def _find(self, key: _Key) -> _Key | None:
        """The key of the kept read that has the offset.

        Few reads are kept, and most clients ask for what is behind another read.
        """
        if key in self._kept:
            return key
        offset, place = key.offset, key._replace(offset=NO_OFFSET)
        for other, kept in self._kept.items():
            read = kept.read
            if (
                read.first_offset <= offset < read.next_offset
                and other._replace(offset=NO_OFFSET) == place
            ):
                return other
        return None

    async def find_timestamp(self, partition: Partition, timestamp: int) -> OffsetTimestamp | None:
        """See ``RemoteReads``."""
        try:
            found: OffsetTimestamp | None = await self._remote.call(
                "find_timestamp",
                remote_partition(partition),
                timestamp,
                partition.log.log_start_offset,
                leader_epoch=partition.leader_epoch,
            )
        except SparklogError as error:
            raise self._refusal(partition, error) from error
        return found

    async def signed_segments(
        self,
        partition: Partition,
        start: int,
        end: int,
        times: TimeBounds,
        *,
        seconds: int,
        count_max: int,
    ) -> SignedPage:
        """See ``RemoteReads``."""
        try:
            found: SignedPage = await self._remote.call(
                "signed_segments",
                remote_partition(partition),
                start,
                end,
                times=times,
                seconds=seconds,
                count_max=count_max,
                leader_epoch=partition.leader_epoch,
            )
        except SparklogError as error:
            raise self._refusal(partition, error) from error
        return found

    async def close(self) -> None:
        """End the reads that are on their way."""
        self._waiting.clear()
        self._quota_timer.cancel()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()
        self._kept_of.clear()
        self._kept_bytes = 0

    def _begin(self, key: _Key, count: int, ahead: int) -> None:
        """Begin ``count`` reads; ``ahead`` is how many reads may follow them."""
        self._quota.begin(count * READ_BYTES)
        task = asyncio.get_running_loop().create_task(self._read(key, count, ahead))
        self._running[key] = task

    def _begin_waited_for(self, key: _Key) -> None:
        """Begin a read that a fetch waits for, or put it behind those that wait."""
        if key in self._running or key in self._waiting:
            return
        quota_ms = self._quota.wait_ms()
        if len(self._running) < CALLS_MAX and not self._waiting and not quota_ms:
            self._begin(key, 1, self._window()[0])
        elif len(self._waiting) < WAITING_MAX:
            self._waiting[key] = self._quota.now_ms() if quota_ms else None
            self._begin_next()

    def _begin_next(self) -> None:
        """A call has ended, or the quota may allow one: begin what has waited longest."""
        while self._waiting and len(self._running) < CALLS_MAX:
            key = next(iter(self._waiting))
            is_wanted = self._is_of_now(key) and self._find(key) is None
            quota_ms = self._quota.wait_ms() if is_wanted else 0
            if quota_ms:
                if self._waiting[key] is None:
                    self._waiting[key] = self._quota.now_ms()
                self._quota_timer.start(quota_ms)
                return
            since_ms = self._waiting.pop(key)
            if since_ms is not None:
                self._metrics.count_throttled(self._quota.now_ms() - since_ms)
            if is_wanted and key not in self._running:
                self._begin(key, 1, self._window()[0])

    def _is_of_now(self, key: _Key) -> bool:
        """Whether fetches may still ask for a read."""
        partition = key.partition
        return (
            partition.leader_epoch == key.leader_epoch
            and partition.log.generation == key.generation
            and self._is_hosted(partition)
        )

    def _begin_ahead(self, key: _Key, ahead: int) -> None:
        """Begin the reads that a client asks for next, as far as they are in the bucket only, and
        as soon as there are enough of them for a call."""
        at_once = self._window()[1]
        if not self._is_of_now(key):
            return
        while ahead >= max(1, at_once) and key.offset < key.partition.log.local_log_start_offset:
            found = self._find(key)
            if found is None:
                is_free = len(self._running) < CALLS_MAX and len(self._ahead) < AHEAD_CALLS_MAX
                if is_free and key not in self._running and self._allows_ahead():
                    self._ahead.add(key)
                    self._begin(key, at_once, ahead - at_once)
                return
            ahead -= 1
            key = key._replace(offset=self._kept[found].read.next_offset)

    def _allows_ahead(self) -> bool:
        """Whether the quota has bytes that no fetch waits for."""
        return not self._waiting and self._quota.wait_ms() == 0

    def _window(self) -> tuple[int, int]:
        """How many reads may be ahead of a client, and how many are made with one call.

        The reads of many partitions must not push each other out before they are sent.
        """
        ahead, at_once = AHEAD_IN_FILES if self._in_files else AHEAD_IN_MEMORY
        if len(self._kept) == KEPT_MAX:
            ahead = min(ahead, max(0, KEPT_MAX // len(self._kept_of) - 1))
        return ahead, min(ahead, at_once)

    async def _read(self, key: _Key, count: int, ahead: int) -> None:
        behind, size = key, 0
        try:
            arrived = await self._call(key, count)
        except SparklogError as error:
            self._metrics.read_failures += 1
            elsewhere = await self._read_elsewhere(key, error)
            if elsewhere is not None:
                self._keep(key, _Kept(elsewhere, MemoryPlace(elsewhere.data)))
                behind = key._replace(offset=elsewhere.next_offset)
        else:
            self._in_files = all(each.place.memory_bytes == 0 for each in arrived)
            for each in arrived:
                self._metrics.reads += 1
                self._metrics.bytes_read += each.place.size
                size += each.place.size
                self._keep(behind, each)
                behind = behind._replace(offset=each.read.next_offset)
        finally:
            self._quota.end(count * READ_BYTES, size)
            del self._running[key]
            self._ahead.discard(key)
            self._begin_next()
        self._records_arrived(key.partition.topic_partition)
        if behind is not key:
            self._begin_ahead(behind, ahead)

    async def _read_elsewhere(self, key: _Key, error: SparklogError) -> RemoteRead | None:
        """The records from another replica, if the bucket is damaged; or None, and the fetches that
        wait get the error."""
        found: RemoteRead | None = None
        if isinstance(error, DamagedObjectError) and key.asks_others:
            found = await self._find_elsewhere(
                key.partition, key.offset, error, with_aborted=key.with_aborted
            )
        if found is not None:
            self._metrics.reads_from_replicas += 1
            return found
        self._errors[key] = self._refusal(key.partition, error)
        while len(self._errors) > ERRORS_MAX:
            self._errors.popitem(last=False)
        return None

    async def _call(self, key: _Key, count: int) -> list[_Kept]:
        """Make up to ``count`` reads, at least one.  Raises SparklogError."""
        open_file = self._open_file
        found = await self._call_read(key, count, takes_files=open_file is not None)
        if open_file is not None:
            try:
                return [_Kept(each, find_place(each, open_file)) for each in found]
            except StorageError as error:
                logger.debug("what was read is not cached any more: %s", error)
            found = await self._call_read(key, 1, takes_files=False)
        return [_Kept(each, MemoryPlace(each.data)) for each in found]

    async def _call_read(self, key: _Key, count: int, *, takes_files: bool) -> Sequence[RemoteRead]:
        found: Sequence[RemoteRead] = await self._remote.call(
            "read_several",
            remote_partition(key.partition),
            range(key.offset, key.partition.log.local_log_start_offset),
            READ_BYTES,
            count,
            with_aborted=key.with_aborted,
            leader_epoch=key.leader_epoch,
            takes_files=takes_files,
        )
        return found

    def _refusal(self, partition: Partition, error: SparklogError) -> KafkaError:
        refusal = _kafka_error(partition, error)
        if isinstance(error, DamagedObjectError):
            self._tell_damage(partition.topic_partition, refusal)
        return refusal

    def _keep(self, key: _Key, kept: _Kept) -> None:
        if key in self._kept:
            self._drop(key)
        self._kept[key] = kept
        self._kept_of[key.partition] += 1
        self._kept_bytes += kept.place.memory_bytes
        while len(self._kept) > 1 and (
            self._kept_bytes > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX
        ):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        self._kept_bytes -= self._kept.pop(key).place.memory_bytes
        self._kept_of[key.partition] -= 1
        if not self._kept_of[key.partition]:
            del self._kept_of[key.partition]


class _Timer:
    """Calls ``action`` once, at the first time for which it was started."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self, after_ms: int) -> None:
        if self._handle is None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(after_ms / 1000, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._action()


def _kafka_error(partition: Partition, error: SparklogError) -> KafkaError:
    """The error for a client; see ``read_error_code``.

    The bucket's copy of these records is the only one, so damage of it is reported.
    """
    # The log says that the records are there: OFFSET_OUT_OF_RANGE would make a client skip them.
    if isinstance(error, KafkaError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return error
    is_damage = isinstance(error, DamagedObjectError)
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE if is_damage else ErrorCode.KAFKA_STORAGE_ERROR,
        f"{partition.topic_partition} cannot be read from the remote_dir: {error}",
    )
