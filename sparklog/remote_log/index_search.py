"""Searches in the offset index and the time index of a segment.

Owns: the entries in the bytes of both parts, which have the formats of Kafka's ``.index`` and
``.timeindex``, big endian.  Must not know batches, or where the bytes come from.

An offset entry is a relative offset i32 and a position i32: the *last* offset of the batch that
begins at the position.  A time entry is a timestamp i64 and a relative offset i32: no batch before
the entry was written has a larger timestamp, and the first batch with this timestamp ends at the
offset.  An index has an entry for some batches only, but none for the first batch.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import Buffer

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")


class IndexEntry(NamedTuple):
    """A batch's last offset and its first byte.  Position 0 stands for the start of the segment."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """A timestamp in milliseconds and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


def offset_entries(data: Buffer, base_offset: int) -> Iterator[IndexEntry]:
    """All entries of an offset index, which has whole entries."""
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        yield IndexEntry(base_offset + relative, position)


def time_entries(data: Buffer, base_offset: int) -> Iterator[TimeEntry]:
    """All entries of a time index, which has whole entries."""
    for timestamp, relative in TIME_ENTRY.iter_unpack(data):
        yield TimeEntry(timestamp, base_offset + relative)


def entries_around(
    data: Buffer, base_offset: int, offset: int
) -> tuple[IndexEntry, IndexEntry | None]:
    """The last entry at or below ``offset``, and the next entry, if there is one.

    Without an entry at or below ``offset``, the first value is (base offset, 0).
    """
    slot = _count_up_to(data, OFFSET_ENTRY, 0, offset - base_offset)
    before = _offset_entry(data, base_offset, slot - 1)
    return before or IndexEntry(base_offset, 0), _offset_entry(data, base_offset, slot)


def entry_behind(data: Buffer, base_offset: int, position: int) -> IndexEntry | None:
    """The first entry whose batch begins behind ``position``; None without such an entry."""
    return _offset_entry(data, base_offset, _count_up_to(data, OFFSET_ENTRY, 1, position))


def times_around(
    data: Buffer, base_offset: int, timestamp: int
) -> tuple[TimeEntry, TimeEntry | None]:
    """The last entry at or below ``timestamp``, and the next entry, if there is one.

    Without an entry at or below ``timestamp``, the first value is (-1, base offset).
    """
    slot = _count_up_to(data, TIME_ENTRY, 0, timestamp)
    before = _time_entry(data, base_offset, slot - 1)
    return before or TimeEntry(NO_TIMESTAMP, base_offset), _time_entry(data, base_offset, slot)


def _count_up_to(data: Buffer, entry: struct.Struct, column: int, target: int) -> int:
    """The number of entries whose ``column`` is at most ``target``."""
    return bisect_right(
        range(len(data) // entry.size),
        target,
        key=lambda slot: entry.unpack_from(data, slot * entry.size)[column],
    )


def _offset_entry(data: Buffer, base_offset: int, slot: int) -> IndexEntry | None:
    if not 0 <= slot < len(data) // OFFSET_ENTRY.size:
        return None
    relative, position = OFFSET_ENTRY.unpack_from(data, slot * OFFSET_ENTRY.size)
    return IndexEntry(base_offset + relative, position)


def _time_entry(data: Buffer, base_offset: int, slot: int) -> TimeEntry | None:
    if not 0 <= slot < len(data) // TIME_ENTRY.size:
        return None
    timestamp, relative = TIME_ENTRY.unpack_from(data, slot * TIME_ENTRY.size)
    return TimeEntry(timestamp, base_offset + relative)
