"""The part of a range that a task reads from the bucket, without a broker and without credentials.

Owns: the order of segments and reads, the parts that bounds of time rule out, new URLs for old
ones, and which offsets brokers read.  Must not know HTTP, Spark, or how batches are decoded.

The batches are the bytes that a broker would send, and they are checked as a broker checks them.
The next read runs in a thread while the caller decodes.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from sparklog.client.fetch_api import Fetched
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.segment_source import SegmentSource
from sparklog.dataframe.read.signed_objects import ReadUrl, SignedObjects
from sparklog.errors import DecodeError, SparklogError
from sparklog.remote_log import names
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.index_search import entries_around, entry_behind
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.read_memory import ReadMemory
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.remote_log.time_ranges import offsets_within
from sparklog.storage_backends.base import MissingPathError
from sparklog.storage_backends.url_ranges import RefusedUrlError, UrlRanges
from sparklog.types import Isolation
from sparklog.wire.protocol.messages.fetch import AbortedTransaction

log = logging.getLogger(__name__)

#: Bytes of the first read of a range, in case that the query needs only some rows.
FIRST_READ_BYTES: Final = 1024 * 1024
#: Bytes of every later read; a larger batch comes nevertheless.
READ_BYTES: Final = 8 * 1024 * 1024
#: Offsets that are ruled out are read nevertheless, where they have fewer bytes than this.
SKIPPED_BYTES_MIN: Final = 128 * 1024

#: Of this process: Spark runs one task after the other in it.
_MEMORY: Final = ReadMemory(2 * READ_BYTES, threading.Lock())


class _Read(NamedTuple):
    """What a read of the offsets [``start``, ``next_offset``) has brought; None: nothing to see."""

    start: int
    next_offset: int
    fetched: Fetched | None


class BrokerReads(Protocol):
    """The batches of a range from brokers; ``offset`` is the first that no batch has covered."""

    offset: int

    def __iter__(self) -> Iterator[tuple[int, Fetched]]: ...


class DirectReads:
    """Iterates over the batches of a range as far as they are in the bucket, as ``RangeFetcher``
    does.

    When the iteration ends, ``offset`` is the end of the range, or the offset from which brokers
    must read.  The last batch may reach above what the plan wants of the bucket.  It is logged when
    brokers take over earlier.  ``read_by_brokers`` is asked for the offsets that a damaged object
    has lost, because replicas may have these in their files; its errors mean that they have not.
    Iterating then raises CorruptBatchError, unless the options skip such records.
    """

    def __init__(
        self,
        item: OffsetRange,
        source: SegmentSource,
        ranges: UrlRanges,
        isolation: Isolation,
        corrupt: CorruptBatches,
        read_by_brokers: Callable[[OffsetRange], BrokerReads],
    ) -> None:
        self.offset = item.start
        self._range = item
        self._ranges = ranges
        self._corrupt = corrupt
        self._read_by_brokers = read_by_brokers
        #: Damaged objects: the last one that a warning has named, and those that no broker has.
        self._told = ""
        self._refused: set[str] = set()
        self._reads = _SegmentReads(item, source, ranges.read_into, isolation)

    def __iter__(self) -> Iterator[tuple[int, Fetched]]:
        """Pairs of the first wanted offset and the batches from there on."""
        end = self._range.remote_end
        thread = ThreadPoolExecutor(1, "direct-reads")
        pending: Future[_Read] | None = None
        try:
            while self.offset < end:
                pending = pending or thread.submit(self._reads.read, self.offset)
                try:
                    found = pending.result()
                except DamagedObjectError as error:
                    pending = None
                    yield from self._read_damaged(error)
                    continue
                except SparklogError as error:
                    self._give_up(error)
                    return
                self.offset = found.next_offset
                pending = None
                if self.offset < end:
                    pending = thread.submit(self._reads.read, self.offset)
                if found.fetched is not None:
                    yield found.start, found.fetched
        finally:
            thread.shutdown(cancel_futures=True)
            self._ranges.close()

    def _read_damaged(self, error: DamagedObjectError) -> Iterator[tuple[int, Fetched]]:
        """What the brokers have of the offsets that an object has lost.  What they do not give
        counts as corrupt, and they are not asked for more of this object."""
        end = min(max(error.end_offset, self.offset + 1), self._range.remote_end)
        # No wanted offset is below the damage: a read that meets damage had nothing before it.
        self.offset = min(max(self.offset, error.first_offset), end)
        if self.offset < end and error.path not in self._refused:
            part = replace(self._range, start=self.offset, end=end, remote=None)
            try:
                reads = self._read_by_brokers(part)
                for start, fetched in reads:
                    self._warn_once(error, part)
                    self.offset = reads.offset
                    yield start, fetched
            except SparklogError as refused:
                self._refused.add(error.path)
                log.info("the brokers do not have offset %d: %s", self.offset, refused)
        if self.offset < end:
            self._corrupt.skip_or_raise(self.offset, end - 1, error)
            self.offset = end

    def _warn_once(self, error: DamagedObjectError, part: OffsetRange) -> None:
        if error.path != self._told:
            self._told = error.path
            log.warning(
                "%s: a broker has sent offsets from %d on, because the bucket is damaged; put the "
                "object back while replicas have them in their files: %s",
                part.topic_partition, part.start, error,
            )  # fmt: skip

    def _give_up(self, error: SparklogError) -> None:
        self._corrupt.note_given_up(self.offset, error)
        log.warning(
            "%s: the brokers read the offsets %d to %d from the bucket, because this task cannot: "
            "%s",
            self._range.topic_partition, self.offset, self._range.end, error,
        )  # fmt: skip


class _SegmentReads:
    """The reads of a range, one after the other, in one thread."""

    def __init__(
        self, item: OffsetRange, source: SegmentSource, read_url: ReadUrl, isolation: Isolation
    ) -> None:
        assert item.topic_id is not None, "the bucket knows topics by their ids"
        self._range = item
        self._source = source
        self._read_url = read_url
        self._committed = isolation is Isolation.READ_COMMITTED
        self._folder = names.segments_folder(item.topic_id, item.topic_partition.partition)
        self._parts = PartCache()
        self._memory = _MEMORY
        self._bytes = FIRST_READ_BYTES
        self._open: _OpenSegment | None = None

    def read(self, offset: int) -> _Read:
        """The next batches from ``offset`` on.

        Old URLs are replaced once, and bytes that seem damaged are read once more.

        Raises StorageError, KafkaError, ConnectError, DamagedObjectError.
        """
        try:
            return self._read(offset)
        except (RefusedUrlError, MissingPathError):
            self._source.forget()
        except DamagedObjectError:
            self._parts = PartCache()
        self._open = None
        return self._read(offset)

    def _read(self, offset: int) -> _Read:
        start = offset
        while offset < self._range.remote_end:
            signed = self._source.at(offset)
            if signed is None:
                break
            opened = self._opened(signed)
            segment = opened.segment
            wanted = opened.next_wanted(offset)
            if wanted is None:
                offset = segment.next_offset
                continue
            offset, end = wanted
            size = min(self._bytes, opened.bytes_between(offset, end))
            self._bytes = READ_BYTES
            read = opened.reader.read_batches(
                segment,
                offset,
                size,
                end_offset=segment.next_offset,
                with_aborted=self._committed,
            )
            if not read.data:  # compaction has left nothing at the end of the segment
                offset = segment.next_offset
                continue
            fetched = Fetched(
                records=memoryview(read.data),
                high_watermark=self._range.end,
                last_stable_offset=self._range.end,
                log_start_offset=self._range.start,
                aborted=tuple(
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in read.aborted
                ),
                crc_checked=True,
            )
            return _Read(offset, min(read.next_offset, self._range.end), fetched)
        return _Read(start, self._range.remote_end, None)

    def _opened(self, signed: SignedSegment) -> "_OpenSegment":
        opened = self._open
        if opened is None or opened.segment.segment_id != signed.segment.segment_id:
            opened = self._open = _OpenSegment(
                self._range,
                SignedObjects(self._read_url, self._folder, signed, self._memory),
                self._folder,
                self._parts,
            )
        opened.objects.signed = signed
        return opened


class _OpenSegment:
    """A segment that is being read, and the offsets of it that are wanted."""

    def __init__(
        self, item: OffsetRange, objects: SignedObjects, folder: str, parts: PartCache
    ) -> None:
        self.objects = objects
        self.segment: RemoteSegment = objects.signed.segment
        self.reader = RemoteReader(objects.read, folder, parts)
        self._spans = self._wanted(item)

    def next_wanted(self, offset: int) -> tuple[int, int] | None:
        """The first wanted offsets from ``offset`` on; None if there are none in the segment."""
        for start, end in self._spans:
            if offset < end:
                return max(start, offset), end
        return None

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the batches with the offsets [``start``, ``end``), or a little more."""
        index = self.reader.index(self.segment, PartName.OFFSET_INDEX)
        base_offset = self.segment.base_offset
        first, _ = entries_around(index, base_offset, start)
        _, last = entries_around(index, base_offset, end - 1)
        # The batch of the entry may begin below the end.
        behind = None if last is None else entry_behind(index, base_offset, last.position)
        position = self.segment.log_size if behind is None else behind.position
        return position - first.position

    def _wanted(self, item: OffsetRange) -> list[tuple[int, int]]:
        segment = self.segment
        if not segment.may_hold(item.times):
            return []
        lowest, highest = item.min_timestamp_ms, item.max_timestamp_ms
        spans = [(segment.base_offset, segment.next_offset)]
        if highest is not None:
            try:
                stats = self.reader.part(segment, PartName.STATS) or b""
                spans = offsets_within(stats, segment, lowest, highest)
            except (DecodeError, DamagedObjectError) as error:
                log.info("%s is read whole: %s", segment.segment_id, error)
        inside = [
            (max(start, item.start), min(end, item.end))
            for start, end in spans
            if start < item.end and item.start < end
        ]
        return self._joined(inside)

    def _joined(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans, with small gaps between them closed: a request costs more than these."""
        found: list[tuple[int, int]] = []
        for start, end in spans:
            if found and self.bytes_between(found[-1][1], start) < SKIPPED_BYTES_MIN:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
        return found
