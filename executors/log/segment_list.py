"""The segments of one log in order, with the reads and lookups across segments.

Owns: which segment holds an offset, and operations on several segments.  Must not know roles,
retention or durability.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_checks import check_segment
from sparklog.executors.log.segment_read import are_emptied, find_batches
from sparklog.executors.log.snapshots import ProducerState, SnapshotFiles
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.storage_backends.base import Region
from sparklog.wire.records.batch import BatchHeader, Buffer

#: Most reads of emptied batches in one read of a log; the reader's next read continues.
_EMPTIED_READS_MAX: Final = 64


class AppendInfo(NamedTuple):
    """Where an append was written; ``position`` is in the log file of the segment."""

    base_offset: int
    last_offset: int
    segment_base_offset: int
    position: int
    size: int
    rolled: bool


class LogRead(NamedTuple):
    """Whole batches; the first batch may begin below the fetch offset.

    ``aborted`` are aborted transactions with data among the batches, if asked for.  ``region`` is
    None without batches (``size`` 0); otherwise the caller releases it.  A tuple, because every
    read makes one.
    """

    region: Region | None
    size: int
    first_offset: int
    aborted: tuple[AbortedTxn, ...] = ()


class SegmentList:
    """The segments, oldest first; the last segment is the active one."""

    __slots__ = ("_segments", "_with_aborted", "replacements")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        #: How often segments were replaced by cleaned segments.
        self.replacements = 0
        #: The segments whose transaction index has entries, oldest first.
        self._with_aborted: list[Segment] = []
        self.find_aborted()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def base_offsets(self) -> set[int]:
        return {segment.base_offset for segment in self._segments}

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self._segments)

    def use(self, files: FileCache) -> None:
        """Close the open files, and open files through this cache from now on."""
        for segment in self._segments:
            segment.close()
            segment.attach(files)

    def append(self, segment: Segment) -> None:
        self._segments.append(segment)

    def append_marker(
        self,
        buffers: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        now_ms: int,
        aborted: AbortedTxn,
    ) -> int:
        """Write the batch that aborts a transaction, and its entry in the transaction index.

        The entry comes first: a marker without it would make aborted data readable.  Returns and
        raises as ``Segment.append``.
        """
        active = self.active
        active.txn_index.append(aborted)
        try:
            position = active.append(buffers, headers, now_ms)
        except (StorageError, CorruptLogError):
            active.txn_index.undo()
            raise
        if not self._with_aborted or self._with_aborted[-1] is not active:
            self._with_aborted.append(active)
        return position

    def remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        self.find_aborted()

    def index(self, segment: Segment) -> int:
        return self._segments.index(segment)

    def replace(self, replaced: Sequence[Segment], segment: Segment) -> None:
        """Put a cleaned segment in the place of adjacent segments."""
        begin = self._segments.index(replaced[0])
        assert self._segments[begin : begin + len(replaced)] == list(replaced)
        self._segments[begin : begin + len(replaced)] = [segment]
        self.replacements += 1
        self.find_aborted()

    def find_aborted(self) -> None:
        """Find the segments whose transaction index has entries, after a change of segments."""
        self._with_aborted = [segment for segment in self._segments if segment.txn_index.entries]

    def base_below(self, offset: int) -> int:
        """The base offset of the last segment after a truncation to ``offset``."""
        below = [segment.base_offset for segment in self._segments if segment.base_offset < offset]
        return max(below, default=self._segments[0].base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop batches that end at or above ``offset``, but keep the first segment."""
        while len(self._segments) > 1 and self.active.base_offset >= offset:
            self.active.remove()
            self._segments.pop()
        self.active.truncate_to(offset)
        self.find_aborted()

    def truncate_fully_and_start_at(self, create: Callable[[], Segment]) -> None:
        """Remove all files, then start with a new segment from ``create``."""
        # The newest first: after a crash the remaining segments are still the start of a log.
        for segment in reversed(self._segments):
            segment.remove()
        self._segments[:] = [create()]
        self.find_aborted()

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segment that holds ``offset`` and all later segments; all segments for an earlier
        offset."""
        if offset >= self._segments[-1].base_offset:
            index = len(self._segments) - 1
        else:
            index = max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)
        while index < len(self._segments):
            yield self._segments[index]
            index += 1

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        min_one: bool,
        with_aborted: bool,
        skip_emptied: bool,
    ) -> LogRead:
        """See ``Log.read``; the offsets are in range."""
        found: tuple[Segment, int, int, int] | None = None
        start, reads = offset, 0
        for segment in self.from_offset(offset) if offset < end_offset else ():
            # Batches behind emptied ones may be in the same segment, because the size is limited.
            while batches := find_batches(segment, start, max_bytes, end_offset, min_one):
                position, size, first_offset = batches
                reads += 1
                if size:
                    found = segment, position, size, first_offset
                if not (size and skip_emptied and reads < _EMPTIED_READS_MAX) or not are_emptied(
                    segment, position, size
                ):
                    break
                start = segment.offset_at(position + size)
            else:
                continue
            break
        if found is None:
            return LogRead(region=None, size=0, first_offset=offset)
        segment, position, size, first_offset = found
        aborted: tuple[AbortedTxn, ...] = ()
        if with_aborted and self._with_aborted and self._last_aborted() >= offset:
            aborted = self.collect_aborted(offset, segment.offset_at(position + size))
        region = segment.region(position, size)
        return LogRead(region=region, size=size, first_offset=first_offset, aborted=aborted)

    def _last_aborted(self) -> int:
        """The offset of the last marker of an aborted transaction; there is one."""
        return self._with_aborted[-1].txn_index.last_offset

    def collect_aborted(self, start: int, end: int) -> tuple[AbortedTxn, ...]:
        """Aborted transactions with offsets in [start, end), in the order of their markers."""
        found: list[AbortedTxn] = []
        with_aborted = self._with_aborted
        begin = max(bisect_right(with_aborted, start, key=_base_offset) - 1, 0)
        for index in range(begin, len(with_aborted)):
            more, complete = with_aborted[index].txn_index.collect(start, end)
            found += more
            if complete:
                break
        return tuple(found)

    def check_invariants(self) -> None:
        """Reads every batch; for tests."""
        assert self._segments
        for before, after in pairwise(self._segments):
            assert before.base_offset < after.base_offset
            assert before.next_offset <= after.base_offset
        for segment in self._segments:
            check_segment(segment)
        assert self._with_aborted == [s for s in self._segments if s.txn_index.entries]


def restore_producers(
    producers: ProducerState, snapshots: SnapshotFiles, segments: SegmentList, now_ms: int
) -> int:
    """Restore the producer state as of the log's end; return how many batches were replayed.

    Missing snapshots at the base offsets of segments are written again: once retention has deleted
    earlier segments, older snapshots are of no use.  Stale transaction indexes are rebuilt on the
    way, so the replay begins before the first stale index.
    """
    snapshots.keep_between(segments[0].base_offset, segments.end_offset)
    stale = [segment.base_offset for segment in segments if segment.txn_index.stale]
    known = snapshots.load_latest(producers, now_ms, at_most=min(stale, default=None))
    start = segments[0].base_offset if known is None else known
    replayed = 0
    for segment in segments.from_offset(start):
        if segment.base_offset > start:
            snapshots.write(segment.base_offset, producers.to_snapshot())
        aborted: list[AbortedTxn] = []
        for header, marker in segment.batches_from(start):
            txn = producers.replay(header, now_ms, marker)
            if txn is not None:
                aborted.append(txn)
            replayed += 1
        if segment.txn_index.stale:
            segment.txn_index.replace(aborted)
            segments.find_aborted()
    return replayed


def aborted_overlapping(segments: Sequence[Segment], segment: Segment) -> tuple[AbortedTxn, ...]:
    """All aborted transactions with offsets in one of the ``segments`` of a log (``Log.segments``).

    The segment must end at or below the last stable offset.  Every transaction with records in the
    segment is decided then, so the list is complete, and no later append changes it.  A marker may
    lie in a later segment: transaction indexes are read up to the entry at which the last stable
    offset has passed the segment.  The order is that of the markers.  Raises StorageError.
    """
    return SegmentList(segments).collect_aborted(segment.base_offset, segment.next_offset)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
