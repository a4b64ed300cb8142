"""Zigzag varints, one at a time.

Owns: the integer encoding of record fields (Protocol Buffers' sint32/sint64).  Must not know
records.
"""

from typing import Final

from sparklog.errors import DecodeError

Buffer = bytes | bytearray | memoryview

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """Zigzag, seven bits per byte, lowest bits first; ``value`` fits 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(buf: Buffer, position: int, max_bytes: int = MAX_VARINT_BYTES) -> tuple[int, int]:
    """(value, position after it).  Raises DecodeError for a partial or too long varint."""
    raw = 0
    shift = 0
    for index in range(position, min(len(buf), position + max_bytes)):
        byte = buf[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> 64:
                raise DecodeError("a varint exceeds 64 bits")
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise DecodeError(f"a varint has no end within {max_bytes} bytes")


def varint_width(value: int) -> int:
    """Encoded size in bytes of one value."""
    return max(1, (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7)
