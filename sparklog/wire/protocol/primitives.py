"""Variable-length primitives of the Kafka protocol: varints, strings, bytes, array lengths.

Owns: the byte forms of the protocol guide and KIP-482 ("compact" forms).  Must not know messages.
Readers are ``(buffer, offset) -> (value, next offset)``.  They check every length against what is
left before they take anything; running off the end raises IndexError, struct.error or DecodeError,
which the codec turns into DecodeError.
"""

from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from sparklog.errors import DecodeError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_unpack_int16 = _INT16.unpack_from
_unpack_int32 = _INT32.unpack_from
_pack_int16 = _INT16.pack
_pack_int32 = _INT32.pack

#: The zero UUID stands for "none".
NO_UUID: Final = bytes(16)
MAX_STRING_BYTES: Final = 2**15 - 1


class TooManyItemsError(DecodeError):
    """A message has more items than its budget allows."""


def read_uvarint(buffer: memoryview, offset: int) -> tuple[int, int]:
    byte = buffer[offset]
    if byte < 0x80:
        return byte, offset + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        offset += 1
        byte = buffer[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset + 1
    raise DecodeError("a varint is longer than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(buffer: memoryview, offset: int, size: int) -> tuple[memoryview | None, int]:
    """``size`` bytes, None for -1."""
    end = offset + size
    if size < 0:
        if size != -1:
            raise DecodeError(f"a length is negative: {size}")
        return None, offset
    if end > len(buffer):
        raise DecodeError(f"a length of {size} exceeds the {len(buffer) - offset} bytes left")
    return buffer[offset:end], end


def read_compact_nullable_view(buffer: memoryview, offset: int) -> tuple[memoryview | None, int]:
    size, offset = read_uvarint(buffer, offset)
    return _take(buffer, offset, size - 1)


def read_nullable_view(buffer: memoryview, offset: int) -> tuple[memoryview | None, int]:
    return _take(buffer, offset + 4, _unpack_int32(buffer, offset)[0])


def read_compact_view(buffer: memoryview, offset: int) -> tuple[memoryview, int]:
    view, offset = read_compact_nullable_view(buffer, offset)
    if view is None:
        raise DecodeError("records are null that must not be")
    return view, offset


def read_view(buffer: memoryview, offset: int) -> tuple[memoryview, int]:
    view, offset = read_nullable_view(buffer, offset)
    if view is None:
        raise DecodeError("records are null that must not be")
    return view, offset


def read_compact_nullable_string(buffer: memoryview, offset: int) -> tuple[str | None, int]:
    return read_compact_string(buffer, offset) if buffer[offset] else (None, offset + 1)


def read_compact_string(buffer: memoryview, offset: int) -> tuple[str, int]:
    size = buffer[offset]
    if size > 0x7F:
        size, offset = read_uvarint(buffer, offset)
    else:
        offset += 1
    if not size:
        raise DecodeError("a string is null that must not be")
    end = offset + size - 1
    if end > len(buffer):
        raise DecodeError(f"a length of {size - 1} exceeds the {len(buffer) - offset} bytes left")
    return str(buffer[offset:end], "utf-8"), end


def read_nullable_string(buffer: memoryview, offset: int) -> tuple[str | None, int]:
    view, offset = _take(buffer, offset + 2, _unpack_int16(buffer, offset)[0])
    return (None if view is None else str(view, "utf-8")), offset


def read_string(buffer: memoryview, offset: int) -> tuple[str, int]:
    view, offset = _take(buffer, offset + 2, _unpack_int16(buffer, offset)[0])
    if view is None:
        raise DecodeError("a string is null that must not be")
    return str(view, "utf-8"), offset


def read_compact_nullable_bytes(buffer: memoryview, offset: int) -> tuple[bytes | None, int]:
    view, offset = read_compact_nullable_view(buffer, offset)
    return (None if view is None else bytes(view)), offset


def read_compact_bytes(buffer: memoryview, offset: int) -> tuple[bytes, int]:
    view, offset = read_compact_nullable_view(buffer, offset)
    if view is None:
        raise DecodeError("bytes are null that must not be")
    return bytes(view), offset


def read_nullable_bytes(buffer: memoryview, offset: int) -> tuple[bytes | None, int]:
    view, offset = read_nullable_view(buffer, offset)
    return (None if view is None else bytes(view)), offset


def read_bytes(buffer: memoryview, offset: int) -> tuple[bytes, int]:
    view, offset = read_nullable_view(buffer, offset)
    if view is None:
        raise DecodeError("bytes are null that must not be")
    return bytes(view), offset


def refuse_items(
    buffer: memoryview, offset: int, count: int, item_size: int, items_left: int, nullable: bool
) -> None:
    """Raise DecodeError for an invalid item count of an array; -1 stands for null."""
    if count < 0 and not (count == -1 and nullable):
        raise DecodeError(f"an array cannot have {count} items")
    if count * item_size > len(buffer) - offset:
        raise DecodeError(
            f"an array of {count} items exceeds the {len(buffer) - offset} bytes left"
        )
    if items_left < 0:
        raise TooManyItemsError(
            f"an array of {count} items is {-items_left} more than a message may have"
        )


def take_items(budget: list[int], count: int) -> None:
    """Take ``count`` items from a budget (see ``decoders``).  Raises TooManyItemsError."""
    budget[0] -= count
    budget[1] -= count
    if budget[0] < 0:
        raise TooManyItemsError(f"{count} items are {-budget[0]} more than a message may have")


def skip_tagged_fields(buffer: memoryview, offset: int, budget: list[int]) -> int:
    """The offset behind a section of tagged fields that are all unknown."""
    count, offset = read_uvarint(buffer, offset)
    take_items(budget, count)
    for _ in range(count):
        _, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        offset = end_of(buffer, offset, size)
    return offset


def end_of(buffer: memoryview, offset: int, size: int) -> int:
    """``offset + size``.  Raises DecodeError beyond the end of the buffer."""
    if size > len(buffer) - offset:
        raise DecodeError(f"a length of {size} exceeds the {len(buffer) - offset} bytes left")
    return offset + size


def read_struct_marker(buffer: memoryview, offset: int) -> tuple[bool, int]:
    """Whether a nullable struct is present (KIP-893), and the next offset."""
    byte = buffer[offset]
    if byte not in (1, 0xFF):
        raise DecodeError(f"a struct's marker is neither 1 nor -1: {byte}")
    return byte == 1, offset + 1


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    encoded = value.encode()
    size = len(encoded) + 1
    if size > 0x7F:
        write_uvarint(out, size)
    else:
        out.append(size)
    out += encoded


def write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    encoded = value.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(
            f"a string of {len(encoded)} bytes exceeds the limit of {MAX_STRING_BYTES}"
        )
    out += _pack_int16(len(encoded))
    out += encoded


def write_compact_bytes(out: bytearray, value: bytes | memoryview | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def write_bytes(out: bytearray, value: bytes | memoryview | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += _pack_int32(len(value))
    out += value


@lru_cache(maxsize=4096)
def uuid_from_bytes(encoded: bytes) -> UUID | None:
    """Cached, because requests name the same topic ids again and again."""
    return None if encoded == NO_UUID else UUID(bytes=encoded)


def uuid_to_bytes(value: UUID | None) -> bytes:
    return NO_UUID if value is None else value.bytes
