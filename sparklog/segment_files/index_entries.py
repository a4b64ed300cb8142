"""The entries of the offset index and the time index of a segment, big endian, as in Kafka.

Owns: the bytes of an entry, and the values.  Must not know batches, or where the bytes come from.

An entry of the ``.index`` is a relative offset i32 and a position i32: the *last* offset of the
batch that begins at the position.  An entry of the ``.timeindex`` is a timestamp i64 and a relative
offset i32: no batch before the entry was written has a larger timestamp, and the first batch with
this timestamp ends at the offset.  Both ascend.  An index has an entry for some batches only, and
the ``.index`` none for the first batch.
"""

import struct
from typing import Final, NamedTuple

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")


class OffsetPosition(NamedTuple):
    """A batch's last offset and its first byte.  Position 0 stands for the start of the segment."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


class Checksum(NamedTuple):
    """The number of entries of an index file, and the CRC-32C of their bytes."""

    entries: int
    crc: int
