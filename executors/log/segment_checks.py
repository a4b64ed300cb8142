"""Checks of a segment's indexes against its log file.

Owns: a check that reads little of the log file (``indexes_fit``), and a check for tests that reads
all of it.  Must not know what follows from a wrong index.
"""

from sparklog.errors import CorruptLogError
from sparklog.executors.log.segment import IndexDamageError, Segment
from sparklog.executors.log.spans import iter_spans
from sparklog.segment_files.index_entries import TimestampOffset
from sparklog.types import NO_TIMESTAMP


def indexes_fit(segment: Segment) -> bool:
    """Whether the last entries are right, and every index that must have entries has some."""
    try:
        return _offset_index_fits(segment) and _time_index_fits(segment)
    except (IndexDamageError, CorruptLogError):
        return False


def _offset_index_fits(segment: Segment) -> bool:
    index = segment.offset_index
    entry = index.last()
    if entry.position == 0:
        # Without entries no batch may start behind the first interval.
        starts = (span.position for span in segment.spans_from(entry))
        return index.entries == 0 and all(
            start <= segment.indexes.interval_bytes for start in starts
        )
    within = segment.base_offset <= entry.offset < segment.next_offset
    return within and bool(next(segment.spans_from(entry), None))


def _time_index_fits(segment: Segment) -> bool:
    if segment.time_index.entries == 0:
        return segment.first_timestamp < 0
    last = segment.time_index.last()
    if last.timestamp < 0 or not segment.base_offset <= last.offset < segment.next_offset:
        return False
    # Retention uses this timestamp, so a batch must have it.
    start = segment.offset_index.lookup(last.offset)
    for span in segment.spans_from(start):
        if span.last_offset >= last.offset:
            return (span.last_offset, span.max_timestamp) == (last.offset, last.timestamp)
    return False


def check_segment(segment: Segment) -> None:
    """Assert that every batch is in order and every index entry is right."""
    expected = segment.base_offset
    by_position: dict[int, int] = {}
    begins: dict[int, int] = {}
    largest: list[TimestampOffset] = [TimestampOffset(NO_TIMESTAMP, segment.base_offset)]
    for span in iter_spans(segment.handle(), 0, segment.size):
        assert span.base_offset >= expected, (segment.log_path, span)
        expected = span.last_offset + 1
        by_position[span.position] = span.last_offset
        begins[span.base_offset] = span.position
        if span.max_timestamp > largest[-1].timestamp:
            largest.append(TimestampOffset(span.max_timestamp, span.last_offset))
    assert expected <= segment.next_offset, (segment.log_path, expected, segment.next_offset)
    assert segment.begins.items() <= begins.items(), (segment.log_path, segment.begins)
    offsets, times = segment.offset_index, segment.time_index
    for entry in map(offsets.entry_at, range(offsets.entries)):
        assert by_position.get(entry.position) == entry.offset, (segment.log_path, entry)
    said = [times.entry_at(number) for number in range(times.entries)]
    assert [each for each in largest if each in said] == said, (times.path, said, largest)
    assert segment.largest == largest[-1], (segment.largest, largest)
