"""The ``.stats`` file of a segment: the state of its log file and indexes, and timestamp ranges.

Owns: bytes <-> values, and the checks whether they describe a given file.  Must not know how a
segment is measured.  Kafka has no such file and ignores it.

Layout, big endian.  Header: magic ``SLST``, version i16 = 1, CRC-32C u32 of the rest of the header,
size of the log file i64, next offset i64, position i64 and CRC u32 of the last batch, largest
timestamp i64 and the last offset i64 of the first batch that has it, entries i32 and CRC-32C u32 of
the ``.index`` and then of the ``.timeindex``, count of intervals i32 (-1: not measured), CRC-32C
u32 of the body.  Body: one interval per index interval, each with its first offset relative to the
segment's i32, and the lowest i64 and the highest i64 timestamp of its records.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import DecodeError
from sparklog.segment_files.index_entries import Checksum, TimestampOffset

STATS_VERSION: Final = 1

_MAGIC: Final = b"SLST"
_PREFIX: Final = struct.Struct(">4shI")
_FIELDS: Final = struct.Struct(">qqqIqqiIiIiI")
_INTERVAL: Final = struct.Struct(">iqq")
_NOT_MEASURED: Final = -1

#: Bytes of the header, which has its own checksum.
STATS_HEADER_BYTES: Final = _PREFIX.size + _FIELDS.size


class TimestampRange(NamedTuple):
    """All records at the offsets [``first_offset``, ``end_offset``) have timestamps in [``lowest``,
    ``highest``] (milliseconds; -1 is a record without one), and both occur."""

    first_offset: int
    end_offset: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStats:
    """A segment at its measurement; ``ranges`` is None if only the files were measured."""

    log_size: int
    next_offset: int
    last_position: int
    last_crc: int
    largest: TimestampOffset
    offset_index: Checksum
    time_index: Checksum
    ranges: Sequence[TimestampRange] | None = field(default=None)


def encode_stats(stats: SegmentStats, base_offset: int) -> bytes:
    """The whole file."""
    ranges = stats.ranges
    body = b"".join(
        _INTERVAL.pack(each.first_offset - base_offset, each.lowest, each.highest)
        for each in ranges or ()
    )
    fields = _FIELDS.pack(
        stats.log_size,
        stats.next_offset,
        stats.last_position,
        stats.last_crc,
        stats.largest.timestamp,
        stats.largest.offset,
        *stats.offset_index,
        *stats.time_index,
        _NOT_MEASURED if ranges is None else len(ranges),
        crc32c(body),
    )
    return _PREFIX.pack(_MAGIC, STATS_VERSION, crc32c(fields)) + fields + body


def decode_stats_header(data: bytes) -> SegmentStats:
    """Everything but the ranges, from the first ``STATS_HEADER_BYTES``.  Raises DecodeError."""
    return _decode_header(data)[0]


def decode_stats(data: bytes, base_offset: int) -> SegmentStats:
    """The whole file.  Raises DecodeError for any damage."""
    stats, count, body_crc = _decode_header(data)
    body = data[STATS_HEADER_BYTES:]
    if count < _NOT_MEASURED or len(body) != max(count, 0) * _INTERVAL.size:
        raise DecodeError(f"segment statistics say {count} intervals in {len(body)} bytes")
    if crc32c(body) != body_crc:
        raise DecodeError("segment statistics have a wrong CRC")
    if count == _NOT_MEASURED:
        return stats
    intervals = list(_INTERVAL.iter_unpack(body))
    following = [base_offset + interval[0] for interval in intervals[1:]]
    ends = [*following, stats.next_offset][: len(intervals)]
    ranges = [
        TimestampRange(base_offset + relative, end, lowest, highest)
        for (relative, lowest, highest), end in zip(intervals, ends, strict=True)
    ]
    if any(each.first_offset >= each.end_offset for each in ranges):
        raise DecodeError("intervals of segment statistics do not ascend")
    return replace(stats, ranges=ranges)


def ranges_between(
    ranges: Sequence[TimestampRange], start: int, end: int
) -> Iterable[TimestampRange]:
    """The ranges that hold an offset in [start, end)."""
    first = max(0, bisect_right(ranges, start, key=lambda each: each.first_offset) - 1)
    for each in ranges[first:]:
        if each.first_offset >= end:
            return
        if each.end_offset > start:
            yield each


def _decode_header(data: bytes) -> tuple[SegmentStats, int, int]:
    """The values, the count of intervals, and the CRC of the body."""
    if len(data) < STATS_HEADER_BYTES:
        raise DecodeError(f"segment statistics of {len(data)} bytes are too short")
    magic, version, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC or version != STATS_VERSION:
        raise DecodeError(f"segment statistics of kind {magic!r}, version {version}, are not known")
    if crc32c(data[_PREFIX.size : STATS_HEADER_BYTES]) != crc:
        raise DecodeError("the header of segment statistics has a wrong CRC")
    (
        log_size,
        next_offset,
        last_position,
        last_crc,
        largest_timestamp,
        largest_offset,
        offset_entries,
        offset_crc,
        time_entries,
        time_crc,
        count,
        body_crc,
    ) = _FIELDS.unpack_from(data, _PREFIX.size)
    stats = SegmentStats(
        log_size=log_size,
        next_offset=next_offset,
        last_position=last_position,
        last_crc=last_crc,
        largest=TimestampOffset(largest_timestamp, largest_offset),
        offset_index=Checksum(offset_entries, offset_crc),
        time_index=Checksum(time_entries, time_crc),
    )
    return stats, count, body_crc
