"""One segment: a log file with its offset, time and transaction index.

Owns: appends, lookups of offsets, truncation and sealing of one segment.  Must not know the other
segments, when to roll or what to delete.

The offset and the time index only make lookups fast.  A lookup trusts an offset entry if the batch
at its position ends at its offset; otherwise both indexes are rebuilt from the log file.  The
transaction index is not a hint: recovery guarantees that it is right.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, count

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError
from sparklog.executors.log.damaged_ranges import (
    DamagedRanges,
    is_damaged,
    walk_headers,
    walk_spans,
)
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    STATS_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.segment_indexes import SegmentIndexes
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.executors.log.spans import BatchSpan, iter_spans, marker_at
from sparklog.executors.log.time_index import TimeIndex
from sparklog.executors.log.txn_index import TxnIndex
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.segment_files.index_entries import OffsetPosition, TimestampOffset
from sparklog.segment_files.stats_file import SegmentStats
from sparklog.storage_backends.base import FileHalf, FileHandle, Region
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import BatchHeader, Buffer
from sparklog.wire.records.control import EndTxnMarker

logger = logging.getLogger(__name__)

#: The number of writes whose positions are remembered.
_BEGINS_MAX = 32
#: A cleaned segment has the base offset of a replaced segment, so a number identifies segments.
_numbers = count()


class IndexDamageError(Exception):
    """An index does not fit its log file; the segment rebuilds it."""


class Segment:
    """One segment; the file cache opens its files for every use."""

    __slots__ = (
        "_files",
        "_first_timestamp",
        "_half",
        "_partition_dir",
        "base_offset",
        "begins",
        "created_ms",
        "damaged",
        "first_append_ms",
        "indexes",
        "last_append_ms",
        "log_path",
        "next_offset",
        "number",
        "offset_index",
        "size",
        "stats_pending",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        half: FileHalf,
        files: FileCache,
        partition_dir: str,
        base_offset: int,
        config: TopicConfig,
        now_ms: int,
    ) -> None:
        self._half = half
        self._files = files
        self._partition_dir = partition_dir
        self.base_offset = base_offset
        self.number = next(_numbers)
        self.log_path = self.path(LOG_SUFFIX)
        self.offset_index = OffsetIndex(half, files, self.path(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(half, files, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.indexes = SegmentIndexes(
            self.offset_index, self.time_index, config.index_interval_bytes
        )
        self.txn_index = TxnIndex(half, files, self.path(TXN_INDEX_SUFFIX), base_offset)
        self.size = 0
        self.next_offset = base_offset
        self.created_ms = now_ms
        self.last_append_ms = now_ms
        #: When the first batch was appended, by the broker's clock; NO_TIMESTAMP if it was found in
        #: the file at a start.  Then only its own timestamp tells how old it is.
        self.first_append_ms = NO_TIMESTAMP
        self._first_timestamp: int | None = None
        #: The positions of the last writes by base offset: a follower's next fetch begins at one.
        self.begins: dict[int, int] = {}
        #: The segment was sealed, and its ``.stats`` is not written yet.
        self.stats_pending = False
        #: The damaged ranges of the log file, as far as known.
        self.damaged: DamagedRanges = ()

    def create(self, config: TopicConfig) -> None:
        """Create the files of a new, active segment.  A failure may leave some of the files."""
        for path in self.paths:
            _make_empty(self._half, path)
        self.activate(config)

    # state

    def path(self, suffix: str) -> str:
        return f"{self._partition_dir}/{file_name(self.base_offset, suffix)}"

    @property
    def paths(self) -> tuple[str, str, str]:
        """The paths of log file, offset index and time index."""
        return self.log_path, self.offset_index.path, self.time_index.path

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch that has it."""
        return self.indexes.largest

    @property
    def age_timestamp(self) -> int:
        """The timestamp for retention by time, in ms."""
        largest = self.largest.timestamp
        return largest if largest != NO_TIMESTAMP else self.last_append_ms

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp; -1 in an empty segment."""
        if self._first_timestamp is None:
            first = next(self.spans_at(0), None) if self.size else None
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def index_full(self) -> bool:
        return self.indexes.full

    def attach(self, files: FileCache) -> None:
        """Open files through this cache from now on."""
        self._files = files
        self.indexes.attach(files)
        self.txn_index.attach(files)

    def activate(self, config: TopicConfig) -> None:
        """Take appends from now on, with these settings."""
        self.indexes.activate(config)

    # writing

    def append(self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Write whole batches at the end; return the position of the first batch.

        Raises StorageError, and then nothing has changed.
        """
        position = self.size
        builder = self.indexes.builder()  # before the write: it may read an index, which can fail
        self.size += self.handle().writev(buffers)
        if position == 0:
            self._first_timestamp = headers[0].max_timestamp
            self.first_append_ms = now_ms
        self.last_append_ms = now_ms
        self.next_offset = headers[-1].next_offset
        self.indexes.append(builder, position, headers)
        self.begins[headers[0].base_offset] = position
        if len(self.begins) > _BEGINS_MAX:
            del self.begins[next(iter(self.begins))]
        return position

    def seal(self) -> None:
        """Take no more appends: write the last time index entry and trim all files.

        The log file is trimmed too: bytes that a failed write left behind its end would be taken
        for damage.
        """
        self.handle().truncate(self.size)
        self.begins.clear()
        self.indexes.finish()
        self.txn_index.trim()
        self.indexes.seal()
        self.stats_pending = True

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or after ``offset``, durably.

        ``activate`` before appending.
        """
        found = self.locate(offset)
        self.begins.clear()
        self.stats_pending = False
        self._half.delete(self.path(STATS_SUFFIX))
        if found is not None:
            handle = self.handle()
            handle.truncate(found.position)
            # After a crash the old tail could reappear below the recovery point.
            handle.flush()
            self.size = found.position
            self.damaged = [
                damaged_range for damaged_range in self.damaged if damaged_range.end <= self.size
            ]
        self.indexes.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        try:
            if not self.indexes.times_known:
                self._make_indexes()
            self.load_tail()
        except IndexDamageError:
            self.rebuild_indexes()
            self.load_tail()

    def remove(self) -> None:
        """Delete the files."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._half.delete(self.path(suffix))

    def close(self) -> None:
        for path in self.paths:
            self._files.drop(path)
        self.txn_index.close()

    # reading

    def handle(self) -> FileHandle:
        """The log file; it stays open until the next use of the cache."""
        return self._files.handle(self._half, self.log_path, self.size)

    def spans_at(self, position: int) -> Iterator[BatchSpan]:
        """The batches from ``position`` on, a damaged range as if it were one batch."""
        if self.damaged:
            return walk_spans(self.handle(), position, self.size, self.damaged)
        return iter_spans(self.handle(), position, self.size)

    def spans_from(self, entry: OffsetPosition) -> Iterator[BatchSpan]:
        """The batches from an index entry on.  Raises IndexDamageError if the entry is wrong."""
        if entry.position == 0 or (self.damaged and is_damaged(entry.position, self.damaged)):
            return self.spans_at(entry.position)
        spans = self.spans_at(entry.position)
        try:
            first = next(spans, None) if 0 < entry.position < self.size else None
        except CorruptLogError:
            first = None
        if first is None or first.last_offset != entry.offset:
            raise IndexDamageError(self.offset_index.path)
        return chain((first,), spans)

    def locate(self, offset: int) -> BatchSpan | None:
        """The first batch that ends at or after ``offset``."""
        try:
            return self._locate(offset)
        except IndexDamageError:
            self.rebuild_indexes()
            return self._locate(offset)

    def region(self, position: int, size: int) -> Region:
        return self.handle().region(position, size)

    def offset_at(self, position: int) -> int:
        """The base offset of the batch at ``position``; at the end, the next offset."""
        if position >= self.size:
            return self.next_offset
        return next(self.spans_at(position)).base_offset

    def files_at_rest(self) -> SegmentFiles:
        """The files of this sealed segment, for work in another thread."""
        return SegmentFiles(
            half=self._half,
            number=self.number,
            base_offset=self.base_offset,
            log_path=self.log_path,
            index_path=self.offset_index.path,
            time_index_path=self.time_index.path,
            stats_path=self.path(STATS_SUFFIX),
            log_size=self.size,
            interval_bytes=self.indexes.interval_bytes,
        )

    def batches_from(self, offset: int) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
        """Headers of the batches that end at or after ``offset``, with the markers of control
        batches.  Exhaust the iterator at once."""
        first = self.locate(offset)
        if first is not None:
            handle = self.handle()
            for header, position in walk_headers(handle, first.position, self.size, self.damaged):
                yield header, marker_at(handle, position, header) if header.is_control else None

    # loading and repair

    def load_sealed(self, size: int, next_offset: int, offsets: int, times: int) -> None:
        """Take over a sealed segment whose index files have this many entries."""
        self.size = size
        self.next_offset = next_offset
        self.indexes.load(offsets, times)

    def load_measured(self, stats: SegmentStats) -> None:
        """Take over a segment whose log file is as in ``stats``; the indexes are not checked."""
        self.load_sealed(
            stats.log_size,
            stats.next_offset,
            stats.offset_index.entries,
            stats.time_index.entries,
        )
        self.indexes.trust_largest(stats.largest)
        self._first_timestamp = None

    def confirm(self, stats: SegmentStats) -> None:
        """Take over a segment whose log file and indexes are as in ``stats``."""
        self.load_measured(stats)
        self.indexes.times_known = True

    def load_tail(self) -> None:
        """Find the end of the log from the last index entry on.

        Raises IndexDamageError or CorruptLogError.
        """
        entry = self.offset_index.last()
        self.indexes.forget_largest()
        self._first_timestamp = None
        self.next_offset = self.base_offset
        for span in self.spans_from(entry):
            self.indexes.note(span.max_timestamp, span.last_offset)
            self.next_offset = span.last_offset + 1
        self.indexes.bytes_since_entry = self.size - entry.position

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers in the log file.  Raises CorruptLogError."""
        logger.warning("the indexes of %s do not fit it: they are made anew", self.log_path)
        self._make_indexes()

    def _make_indexes(self) -> None:
        builder = IndexBuilder(self.base_offset, self.indexes.interval_bytes)
        for span in self.spans_at(0):
            builder.add(span.last_offset, span.position, span.size, span.max_timestamp)
        self.indexes.replace(builder)

    def _locate(self, offset: int) -> BatchSpan | None:
        if offset >= self.next_offset:
            return None
        for span in self.spans_from(self.offset_index.lookup(offset)):
            if span.last_offset >= offset:
                return span
        return None


def _make_empty(half: FileHalf, path: str) -> None:
    handle = half.open(path, create=True)
    try:
        if handle.size():
            handle.truncate(0)
    finally:
        handle.close()
