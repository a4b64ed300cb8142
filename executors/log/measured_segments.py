"""The statistics of the sealed segments of one log: checks, measurements and queries.

Owns: which sealed segments must be checked or measured, and the handover of the results to them.
Must not know how a segment is measured, or what the log does meanwhile.
"""

from functools import partial

from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList
from sparklog.executors.log.segment_stats import Measured, Measuring, SegmentFiles
from sparklog.executors.log.spans import iter_headers
from sparklog.executors.log.steps import Steps, run_through
from sparklog.segment_files.stats_file import SegmentStats, TimestampRange, ranges_between


class MeasuredSegments:
    """The sealed segments of one log.

    Callers run the methods that return ``Steps`` one after the other.
    """

    __slots__ = ("_segments",)

    def __init__(self, segments: SegmentList) -> None:
        self._segments = segments

    @property
    def pending(self) -> bool:
        """Whether the ``.stats`` of a sealed segment is not written yet."""
        return any(segment.stats_pending for segment in self._segments)

    def next_pending(self) -> Measuring | None:
        """The measurement of the oldest pending segment, once; ``take`` it when it is complete."""
        for segment in self._segments:
            if segment.stats_pending:
                segment.stats_pending = False
                return Measuring(segment.files_at_rest())
        return None

    def is_current(self, measuring: Measuring) -> bool:
        """Whether the measured segment is still a sealed segment of the log."""
        return self._are_current(measuring.files)

    def take(self, measuring: Measuring) -> Steps[Measured]:
        """Write the results of a measurement to the files and to the segment.

        The segment learns of each index on its own, so that it knows of the first if the next write
        fails.  A segment that was deleted, or takes appends again, has other files and is skipped.
        """
        measured, files = measuring.finish(), measuring.files
        for path, packed in (
            (files.index_path, measured.offsets),
            (files.time_index_path, measured.times),
        ):
            if not self._are_current(files):
                return measured
            yield partial(files.rewrite_index, path, packed)
            for segment in self._segments:
                if self._is_as_in(segment, files):
                    segment.indexes.adopt(path, len(packed))
        if self._are_current(files):
            yield partial(files.write_stats, measured.stats)
        for segment in self._segments:
            if self._is_as_in(segment, files):
                segment.confirm(measured.stats)
                segment.stats_pending = False
        return measured

    def measure_pending(self) -> None:
        """Measure all pending segments now.  Blocks."""
        while (measuring := self.next_pending()) is not None:
            while measuring.measure_more():
                pass
            run_through(self.take(measuring))

    def ranges(self, start_offset: int, end_offset: int) -> Steps[list[TimestampRange]]:
        """The timestamp ranges of the records at the offsets [start, end), by index intervals.

        The ranges are in the order of offsets and leave the active segment out.
        """
        found: list[TimestampRange] = []
        for segment in tuple(self._segments.from_offset(start_offset)):
            if segment is self._segments.active or segment.base_offset >= end_offset:
                break
            stats: SegmentStats | None = yield segment.files_at_rest().read_stats
            if stats is None:
                stats = (yield from self._measure(segment)).stats
            assert stats.ranges is not None
            found += ranges_between(stats.ranges, start_offset, end_offset)
        return found

    def ensure_time_index(self, segment: Segment, *, largest_only: bool = False) -> Steps[None]:
        """Make sure that the time index of a segment fits its log file.

        Segments that this process wrote or recovered need no check.  Others are checked once, with
        their ``.stats``, and measured again if that fails.
        """
        known = segment.indexes.largest_known if largest_only else segment.indexes.times_known
        if known or segment not in self._segments:
            return
        files = segment.files_at_rest()
        stats = yield files.check
        if stats is None:
            yield from self._measure(segment)
        elif self._is_as_in(segment, files):
            segment.confirm(stats)

    def check_again(self, segment: Segment) -> Steps[None]:
        """Make sure that the indexes of a sealed segment still fit its log file.

        Wrong indexes are rebuilt, even if they were known to be right before.
        """
        if segment not in self._segments or segment is self._segments.active:
            return
        files = segment.files_at_rest()
        stats = yield files.check
        if stats is None and self._are_current(files):
            yield from self._measure(segment)

    def ensure_all_time_indexes(self) -> Steps[None]:
        for segment in tuple(self._segments):
            yield from self.ensure_time_index(segment)

    def _measure(self, segment: Segment) -> Steps[Measured]:
        measuring = Measuring(segment.files_at_rest())
        while (yield measuring.measure_more):
            pass
        return (yield from self.take(measuring))

    def _are_current(self, files: SegmentFiles) -> bool:
        return any(self._is_as_in(segment, files) for segment in self._segments)

    def _is_as_in(self, segment: Segment, files: SegmentFiles) -> bool:
        """Whether a segment is still the sealed segment of these files."""
        return (
            segment in self._segments
            and segment is not self._segments.active
            and (segment.number, segment.size) == (files.number, files.log_size)
        )


def write_closing_stats(segment: Segment) -> None:
    """Write a ``.stats`` without timestamp ranges for the active segment of a closing log.

    Nothing else could tell the next start that the indexes of this segment are whole.
    """
    last = segment.locate(segment.next_offset - 1)
    if last is None:
        return
    header, _ = next(iter_headers(segment.handle(), last.position, segment.size))
    stats = SegmentStats(
        log_size=segment.size,
        next_offset=segment.next_offset,
        last_position=last.position,
        last_crc=header.crc,
        largest=segment.largest,
        offset_index=segment.offset_index.checksum(),
        time_index=segment.time_index.checksum(),
    )
    # Not durable: damage is detected, and then the indexes are rebuilt from the log file.
    segment.files_at_rest().write_stats(stats)
