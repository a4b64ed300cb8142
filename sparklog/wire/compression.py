"""The codecs of record batches: gzip, snappy (raw and xerial), lz4 frame, zstd.

Owns: bytes <-> compressed bytes, with a bound on what decompression may produce.  Must not know
batches.  What is written is readable by every Kafka client: Java's lz4 reader wants independent
blocks, and all read raw snappy, which librdkafka sends too.
"""

import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from sparklog.errors import DecodeError
from sparklog.types import Compression

Buffer = bytes | bytearray | memoryview

#: What one batch may hold when its reader names no other bound.
MAX_UNCOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_INT32: Final = struct.Struct(">i")
_LE_UINT32: Final = struct.Struct("<I")
_GZIP_WINDOW: Final = 31
_FIRST_CHUNK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
#: Largest block -> magic, flags (version 1, independent blocks, no checksums), block size, and the
#: header's checksum byte, which is the same for every frame with these flags.
_LZ4_HEADERS: Final = (
    (64 * 1024, bytes.fromhex("04224d18604082")),
    (256 * 1024, bytes.fromhex("04224d186050fb")),
    (1024 * 1024, bytes.fromhex("04224d18606051")),
    (4 * 1024 * 1024, bytes.fromhex("04224d18607073")),
)


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """``data`` in the codec's format; ``level`` is the codec's own scale, None its default."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        worker = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return worker.compress(data) + worker.flush()
    if codec is Compression.LZ4:
        return _compress_lz4(data, level)
    name = "snappy" if codec is Compression.SNAPPY else "zstd"
    found: bytes = _codec(name, None if codec is Compression.SNAPPY else level).compress(
        data, asbytes=True
    )
    return found


def decompress(
    codec: Compression, data: Buffer, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> bytes | memoryview:
    """What was compressed.  Raises DecodeError when it is malformed or exceeds the limit."""
    if codec is Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return memoryview(data)
    try:
        return _DECOMPRESSORS[codec](data, limit_bytes)
    except (_arrow().ArrowException, OSError, zlib.error, struct.error, ValueError) as error:
        raise DecodeError(f"malformed {codec.name.lower()} data: {error}") from error


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while len(rest):
        worker = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(worker.decompress(rest, limit + 1 - size))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not worker.eof:
            raise DecodeError("gzip data is cut off")
        rest = worker.unused_data
    if not parts:
        raise DecodeError("gzip data is empty")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    if len(data) > _XERIAL_HEADER_BYTES and bytes(data[:8]) == _XERIAL_MAGIC:
        return _decompress_xerial(data, limit)
    return _decompress_snappy_block(data, limit)


def _decompress_xerial(data: Buffer, limit: int) -> bytes:
    """xerial's stream: a 16-byte header, then blocks of (i32 length, raw snappy)."""
    view = memoryview(data)
    position = _XERIAL_HEADER_BYTES
    parts: list[bytes] = []
    left = limit
    while position < len(view):
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise DecodeError(f"snappy block of {length} bytes where {len(view) - position} remain")
        parts.append(_decompress_snappy_block(view[position : position + length], left))
        left -= len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(data: Buffer, limit: int) -> bytes:
    size = _snappy_size(data)
    if size > limit:
        raise _too_large(limit)
    # A copy costs three bytes and yields 64 at most, so a larger claim cannot be honest.
    if size > len(data) * 32:
        raise DecodeError(f"snappy block of {len(data)} bytes claims {size}")
    found: bytes = _codec("snappy", None).decompress(data, size, asbytes=True)
    return found


def _snappy_size(data: Buffer) -> int:
    """A raw snappy block opens with its uncompressed size as a varint of 32 bits."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise DecodeError("snappy data has no size")


def _decompress_lz4(data: Buffer, limit: int) -> bytes | memoryview:
    return _decompress_stream("lz4", data, limit)


def _decompress_zstd(data: Buffer, limit: int) -> bytes | memoryview:
    return _decompress_stream("zstd", data, limit)


def _decompress_stream(name: str, data: Buffer, limit: int) -> bytes | memoryview:
    """Read piece by piece, so that memory follows what is there and not what the data claims.

    Into Arrow's buffers: ``read`` would leak its bytes whenever it meets malformed data.
    """
    parts: list[memoryview] = []
    size = 0
    pa = _arrow()
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        step = max(_FIRST_CHUNK_BYTES, 4 * len(data))
        while True:
            part = memoryview(stream.read_buffer(min(step, limit + 1 - size))).cast("B")
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            step = max(step, size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """A frame of independent blocks of at most 4 MB; a block that does not shrink is stored."""
    view = memoryview(data)
    block_bytes, header = next(
        (entry for entry in _LZ4_HEADERS if len(view) <= entry[0]), _LZ4_HEADERS[-1]
    )
    codec = _codec("lz4_raw", level)
    parts: list[Buffer] = [header]
    for start in range(0, len(view), block_bytes):
        plain = view[start : start + block_bytes]
        packed: bytes = codec.compress(plain, asbytes=True)
        if len(packed) < len(plain):
            parts += (_LE_UINT32.pack(len(packed)), packed)
        else:
            parts += (_LE_UINT32.pack(len(plain) | _LZ4_STORED), plain)
    parts.append(_LE_UINT32.pack(0))
    return b"".join(parts)


@lru_cache(maxsize=64)
def _codec(name: str, level: int | None) -> Any:
    """These codecs keep no state between calls, so threads may share them."""
    return _arrow().Codec(name, compression_level=level)


def _arrow() -> Any:
    """Loaded on first use: it costs 40 MB, and an idle broker neither packs nor unpacks."""
    import pyarrow

    return pyarrow


def _too_large(limit: int) -> DecodeError:
    return DecodeError(f"a batch holds more than {limit} bytes when decompressed")


_DECOMPRESSORS: Final[dict[Compression, Callable[[Buffer, int], bytes | memoryview]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
