"""Searches in the offset index and the time index of a segment.

Owns: the searches in the bytes of both parts; ``index_entries`` has the formats.  Must not know
batches, or where the bytes come from.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator

from sparklog.segment_files.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetPosition,
    TimestampOffset,
)
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import Buffer


def offset_entries(data: Buffer, base_offset: int) -> Iterator[OffsetPosition]:
    """All entries of an offset index, which has whole entries."""
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        yield OffsetPosition(base_offset + relative, position)


def time_entries(data: Buffer, base_offset: int) -> Iterator[TimestampOffset]:
    """All entries of a time index, which has whole entries."""
    for timestamp, relative in TIME_ENTRY.iter_unpack(data):
        yield TimestampOffset(timestamp, base_offset + relative)


def entries_around(
    data: Buffer, base_offset: int, offset: int
) -> tuple[OffsetPosition, OffsetPosition | None]:
    """The last entry at or below ``offset``, and the next entry, if there is one.

    Without an entry at or below ``offset``, the first value is (base offset, 0).
    """
    slot = _count_up_to(data, OFFSET_ENTRY, 0, offset - base_offset)
    before = _offset_entry(data, base_offset, slot - 1)
    return before or OffsetPosition(base_offset, 0), _offset_entry(data, base_offset, slot)


def entry_behind(data: Buffer, base_offset: int, position: int) -> OffsetPosition | None:
    """The first entry whose batch begins behind ``position``; None without such an entry."""
    return _offset_entry(data, base_offset, _count_up_to(data, OFFSET_ENTRY, 1, position))


def times_around(
    data: Buffer, base_offset: int, timestamp: int
) -> tuple[TimestampOffset, TimestampOffset | None]:
    """The last entry at or below ``timestamp``, and the next entry, if there is one.

    Without an entry at or below ``timestamp``, the first value is (-1, base offset).
    """
    slot = _count_up_to(data, TIME_ENTRY, 0, timestamp)
    before = _time_entry(data, base_offset, slot - 1)
    return before or TimestampOffset(NO_TIMESTAMP, base_offset), _time_entry(
        data, base_offset, slot
    )


def _count_up_to(data: Buffer, entry: struct.Struct, column: int, target: int) -> int:
    """The number of entries whose ``column`` is at most ``target``."""
    return bisect_right(
        range(len(data) // entry.size),
        target,
        key=lambda slot: entry.unpack_from(data, slot * entry.size)[column],
    )


def _offset_entry(data: Buffer, base_offset: int, slot: int) -> OffsetPosition | None:
    if not 0 <= slot < len(data) // OFFSET_ENTRY.size:
        return None
    relative, position = OFFSET_ENTRY.unpack_from(data, slot * OFFSET_ENTRY.size)
    return OffsetPosition(base_offset + relative, position)


def _time_entry(data: Buffer, base_offset: int, slot: int) -> TimestampOffset | None:
    if not 0 <= slot < len(data) // TIME_ENTRY.size:
        return None
    timestamp, relative = TIME_ENTRY.unpack_from(data, slot * TIME_ENTRY.size)
    return TimestampOffset(timestamp, base_offset + relative)
