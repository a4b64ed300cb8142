"""The offsets of a segment that bounds of time leave, by its statistics (the part ``stats``).

Owns: the choice of offsets.  Must not know how a segment is measured, or objects.  ``stats_file``
has the format of the part.
"""

from sparklog.errors import DecodeError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.segment_files.stats_file import decode_stats, decode_stats_header


def offsets_within(
    stats: bytes, segment: RemoteSegment, lowest_ms: int | None, highest_ms: int | None
) -> list[tuple[int, int]]:
    """The spans of offsets that hold all records with timestamps in [``lowest_ms``, ``highest_ms``]
    (milliseconds; None is no bound), in order.

    Raises DecodeError unless ``stats`` are the sound statistics of the whole segment.
    """
    described = decode_stats_header(stats)
    if (described.log_size, described.next_offset) != (segment.log_size, segment.next_offset):
        raise DecodeError("segment statistics are those of another segment")
    ranges = decode_stats(stats, segment.base_offset).ranges
    if ranges is None or (ranges and ranges[0].first_offset < segment.base_offset):
        raise DecodeError("segment statistics have no sound intervals")
    spans: list[tuple[int, int]] = []
    for start, end, lowest, highest in ranges:
        too_old = lowest_ms is not None and highest < lowest_ms
        too_new = highest_ms is not None and lowest > highest_ms
        if too_old or too_new:
            continue
        if spans and spans[-1][1] == start:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans
