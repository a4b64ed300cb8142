"""What the statistics of a segment (the part ``stats``) say of the timestamps of its records.

Owns: the offsets that bounds of time leave, and the lowest timestamp.  Must not know how a segment
is measured, or objects.  ``stats_file`` has the format of the part.
"""

from collections.abc import Sequence

from sparklog.errors import DecodeError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.segment_files.stats_file import TimestampRange, decode_stats, decode_stats_header
from sparklog.types import NO_TIMESTAMP


def offsets_within(
    stats: bytes, segment: RemoteSegment, lowest_ms: int | None, highest_ms: int | None
) -> list[tuple[int, int]]:
    """The spans of offsets that hold all records with timestamps in [``lowest_ms``, ``highest_ms``]
    (milliseconds; None is no bound), in order.

    Raises DecodeError unless ``stats`` are the sound statistics of the whole segment.
    """
    spans: list[tuple[int, int]] = []
    for start, end, lowest, highest in _ranges(stats, segment):
        too_old = lowest_ms is not None and highest < lowest_ms
        too_new = highest_ms is not None and lowest > highest_ms
        if too_old or too_new:
            continue
        if spans and spans[-1][1] == start:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def lowest_timestamp(stats: bytes, segment: RemoteSegment) -> int:
    """The lowest timestamp of the segment's records, in milliseconds.

    NO_TIMESTAMP if ``stats`` are not the sound statistics of the whole segment, if the segment has
    no records, and if a record has no timestamp, or one that cannot be read.
    """
    try:
        ranges = _ranges(stats, segment)
    except DecodeError:
        return NO_TIMESTAMP
    return max(NO_TIMESTAMP, min((each.lowest for each in ranges), default=NO_TIMESTAMP))


def _ranges(stats: bytes, segment: RemoteSegment) -> Sequence[TimestampRange]:
    described = decode_stats_header(stats)
    if (described.log_size, described.next_offset) != (segment.log_size, segment.next_offset):
        raise DecodeError("segment statistics are those of another segment")
    ranges = decode_stats(stats, segment.base_offset).ranges
    if ranges is None or (ranges and ranges[0].first_offset < segment.base_offset):
        raise DecodeError("segment statistics have no sound intervals")
    return ranges
