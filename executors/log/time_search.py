"""The search for records by their timestamps in the segments of one log.

Owns: which segments and batches to search, and the blocking parts as steps: walks over headers, and
the decoding of one batch.  Must not know what the log does meanwhile, only whether its ends
have moved.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.damaged_ranges import DamagedRanges, walk_sound_spans
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.measured_segments import MeasuredSegments
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList
from sparklog.executors.log.spans import BatchSpan
from sparklog.executors.log.steps import LongPart, Steps
from sparklog.storage_backends.base import FileHandle
from sparklog.types import NO_TIMESTAMP, OffsetTimestamp
from sparklog.wire.records.record_search import (
    LARGEST_BYTES_MAX,
    SEARCH_BYTES_MAX,
    SearchBudget,
    first_largest_record,
    first_record,
)

#: A search from an offset on.
Search = Callable[[int], Steps[OffsetTimestamp | None]]


class TimeSearch:
    """The searches of one log; run the steps of one log one after the other.

    ``on_damage`` is called with damage of the log before the error is raised.
    """

    __slots__ = ("_ends", "_epochs", "_on_damage", "_segments")

    def __init__(
        self,
        segments: SegmentList,
        epochs: EpochCache,
        *,
        ends: Callable[[], tuple[int, int]],
        on_damage: Callable[[CorruptLogError], None],
    ) -> None:
        self._segments = segments
        self._epochs = epochs
        self._ends = ends
        self._on_damage = on_damage

    def first_from(self, timestamp: int) -> Steps[OffsetTimestamp | None]:
        """The first record with at least this timestamp, or None; exact in any order of times.

        Records that cannot be decoded are skipped.  If the headers of batches are wrong, the result
        may be a lower bound (``record_search``): no record before that offset has such a timestamp.
        """
        return self._search(partial(first_at_or_after, self._segments, timestamp))

    def largest(self) -> Steps[OffsetTimestamp | None]:
        """The first record with the largest timestamp; None without records or timestamps."""
        return self._search(partial(first_with_largest, self._segments))

    def _search(self, search: Search) -> Steps[OffsetTimestamp | None]:
        try:
            found = yield from search_until_unchanged(search, self._ends)
        except CorruptLogError as error:
            self._on_damage(error)
            raise
        if found is None:
            return None
        return replace(found, leader_epoch=self._epochs.epoch_at(found.offset))


def search_until_unchanged(
    search: Search, ends: Callable[[], tuple[int, int]]
) -> Steps[OffsetTimestamp | None]:
    """Search until ``ends`` (log start, number of truncations) has not changed meanwhile."""
    while True:
        before = ends()
        try:
            found = yield from search(before[0])
        except (StorageError, CorruptLogError):
            if ends() == before:
                raise
        else:
            if ends() == before:
                return found


def first_at_or_after(
    segments: SegmentList, timestamp: int, start_offset: int
) -> Steps[OffsetTimestamp | None]:
    """The first record from ``start_offset`` on with at least this timestamp.

    Few batches are large.  Their searches are long parts, which begin again from the start.
    """
    quick = SearchBudget(batch_bytes_max=SEARCH_BYTES_MAX)
    found = yield from _first_in_all(segments, timestamp, quick, start_offset)
    if quick.is_cut_short:
        whole = SearchBudget()
        found = yield from _first_in_all(segments, timestamp, whole, start_offset, is_long=True)
    return found


def _first_in_all(
    segments: SegmentList,
    timestamp: int,
    budget: SearchBudget,
    start_offset: int,
    *,
    is_long: bool = False,
) -> Steps[OffsetTimestamp | None]:
    for segment in tuple(segments.from_offset(start_offset)):
        yield from MeasuredSegments(segments).ensure_time_index(segment, largest_only=True)
        if segment.largest.timestamp >= timestamp:
            found = yield from _first_in(
                segment, segments, timestamp, budget, start_offset, is_long=is_long
            )
            if found is not None:
                return found
    return None


def first_with_largest(segments: SegmentList, start_offset: int) -> Steps[OffsetTimestamp | None]:
    """The first record with the largest timestamp of those from ``start_offset`` on."""
    budget = SearchBudget(LARGEST_BYTES_MAX, batch_bytes_max=LARGEST_BYTES_MAX)
    best: OffsetTimestamp | None = None
    for segment in tuple(segments.from_offset(start_offset)):
        yield from MeasuredSegments(segments).ensure_time_index(segment, largest_only=True)
        if best is None or segment.largest.timestamp > best.timestamp:
            found = yield from _first_largest_in(segment, segments, budget, start_offset)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
    return best


def _first_in(
    segment: Segment,
    segments: SegmentList,
    timestamp: int,
    budget: SearchBudget,
    start_offset: int,
    *,
    is_long: bool = False,
) -> Steps[OffsetTimestamp | None]:
    yield from MeasuredSegments(segments).ensure_time_index(segment)
    if segment not in segments:
        return None
    position = _position_of(segment, timestamp, start_offset)
    if position is None:
        return None
    search = partial(_find_from, timestamp=timestamp, budget=budget, start_offset=start_offset)
    walk = _walk(segment, position, search)
    found: OffsetTimestamp | None = yield LongPart(walk) if is_long else walk
    return found


def _position_of(segment: Segment, timestamp: int, start_offset: int) -> int | None:
    """The position in bytes at which a search begins: no earlier record from ``start_offset`` on is
    at or above ``timestamp``.  None when the segment has no such record.  Requires ``times_known``.
    """
    before, after = segment.time_index.lookup(timestamp)
    first = max(before.offset, start_offset)
    if after is not None and before.timestamp < timestamp:
        # At each offset entry the time index was told what had been largest up to there.
        first = max(first, segment.offset_index.lookup(after.offset - 1).offset)
    found = segment.locate(first)
    return None if found is None else found.position


def _first_largest_in(
    segment: Segment, segments: SegmentList, budget: SearchBudget, start_offset: int
) -> Steps[OffsetTimestamp | None]:
    largest = segment.largest
    if largest.timestamp != NO_TIMESTAMP and largest.offset >= start_offset:
        found = yield from _first_in(segment, segments, largest.timestamp, budget, start_offset)
        if found is not None:
            return found
    first = segment.locate(start_offset) if segment in segments else None
    if first is None:
        return None
    search = partial(_find_largest, budget=budget, start_offset=start_offset)
    best: OffsetTimestamp | None = yield _walk(segment, first.position, search)
    return best


def _walk(
    segment: Segment,
    position: int,
    search: Callable[[FileHandle, int, int, DamagedRanges], OffsetTimestamp | None],
) -> Callable[[], OffsetTimestamp | None]:
    """Run ``search`` from ``position`` to the segment's present end, on a separate handle."""
    files, end, damaged = segment.files_at_rest(), segment.size, segment.damaged

    def walk() -> OffsetTimestamp | None:
        handle = files.half.open(files.log_path)
        try:
            return search(handle, position, end, damaged)
        finally:
            handle.close()

    return walk


def _find_from(
    handle: FileHandle,
    position: int,
    end: int,
    damaged: DamagedRanges,
    *,
    timestamp: int,
    budget: SearchBudget,
    start_offset: int,
) -> OffsetTimestamp | None:
    for span in walk_sound_spans(handle, position, end, damaged):
        if span.max_timestamp >= timestamp and span.last_offset >= start_offset:
            found = first_record(_reading(handle, span), span, timestamp, start_offset, budget)
            if found is not None:
                return found
    return None


def _find_largest(
    handle: FileHandle,
    position: int,
    end: int,
    damaged: DamagedRanges,
    *,
    budget: SearchBudget,
    start_offset: int,
) -> OffsetTimestamp | None:
    best: OffsetTimestamp | None = None
    for span in walk_sound_spans(handle, position, end, damaged):
        above = NO_TIMESTAMP if best is None else best.timestamp
        if span.max_timestamp > above:
            read = _reading(handle, span)
            best = first_largest_record(read, span, above, start_offset, budget) or best
    return best


def _reading(handle: FileHandle, span: BatchSpan) -> Callable[[], bytes]:
    return partial(handle.read, span.position, span.size)
