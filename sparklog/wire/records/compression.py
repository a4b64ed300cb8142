"""The codecs of record batches: gzip, snappy (raw and xerial), lz4 frame, zstd.

Owns: bytes <-> compressed bytes, with a bound on what decompression may produce.  Must not know
batches.  Compressed bytes are readable by every Kafka client: Java's lz4 reader needs independent
blocks, and all clients read raw snappy, which librdkafka sends too.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from sparklog.errors import DecodeError
from sparklog.types import Compression

Buffer = bytes | bytearray | memoryview


class TooLargeError(DecodeError):
    """Data that decompresses to more than the reader's limit; it may be well-formed."""


#: Default limit of the decompressed bytes of one batch.
MAX_UNCOMPRESSED_BYTES: Final = 128 * 1024 * 1024

#: Largest expansion of one compressed byte, by the format of each codec: a deflate
#: match is 258 bytes in 2 bits, a snappy copy 64 in 3 bytes, a zstd block 128 KiB in 4 bytes.
MAX_RATIOS: Final[dict[int, int]] = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,
    Compression.SNAPPY: 32,
    Compression.LZ4: 255,
    Compression.ZSTD: 32768,
}

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
    """The decompressed bytes.  Raises DecodeError for malformed or too large data."""
    if codec is Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return memoryview(data)
    parts: list[bytes | memoryview] = []
    try:
        parts += _DECOMPRESSORS[codec](data, limit_bytes, None)
    except _malformed() as error:
        raise _is_malformed(codec, error) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decompress_parts(
    codec: Compression,
    data: Buffer,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
    part_bytes_max: int | None = None,
) -> Iterator[bytes | memoryview]:
    """The decompressed bytes, part by part in order, on demand.

    A part has at most ``part_bytes_max`` bytes; None leaves the size to the codec.  A block of raw
    snappy is an exception: it is decompressed as one part.  Raises ``TooLargeError`` before the
    part that exceeds ``limit_bytes``, and DecodeError where the data is malformed.
    """
    if codec is Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        yield memoryview(data)
        return
    try:
        yield from _DECOMPRESSORS[codec](data, limit_bytes, part_bytes_max)
    except _malformed() as error:
        raise _is_malformed(codec, error) from error


def _malformed() -> tuple[type[Exception], ...]:
    """The exceptions of the codecs, evaluated only when one was raised."""
    return (_arrow().ArrowException, OSError, zlib.error, struct.error, ValueError)


def _is_malformed(codec: Compression, error: Exception) -> DecodeError:
    return DecodeError(f"malformed {codec.name.lower()} data: {error}")


def _gzip_parts(data: Buffer, limit: int, part_bytes_max: int | None) -> Iterator[bytes]:
    size = 0
    rest: Buffer = data
    if not len(rest):
        raise DecodeError("gzip data is empty")
    while len(rest):
        worker = zlib.decompressobj(_GZIP_WINDOW)
        ended = False
        while not ended:
            room = limit + 1 - size
            part = worker.decompress(rest, room if part_bytes_max is None else part_bytes_max)
            ended = worker.eof
            rest = worker.unused_data if ended else worker.unconsumed_tail
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if part:
                yield part
            elif not ended:
                raise DecodeError("gzip data is cut off")
    if not size:
        yield b""


def _snappy_parts(data: Buffer, limit: int, part_bytes_max: int | None) -> Iterator[bytes]:
    del part_bytes_max
    if len(data) > _XERIAL_HEADER_BYTES and bytes(data[:8]) == _XERIAL_MAGIC:
        yield from _xerial_parts(data, limit)
    else:
        yield _decompress_snappy_block(data, limit)


def _xerial_parts(data: Buffer, limit: int) -> Iterator[bytes]:
    """xerial's stream: a 16-byte header, then blocks of (i32 length, raw snappy)."""
    view = memoryview(data)
    position = _XERIAL_HEADER_BYTES
    left = limit
    while position < len(view):
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise DecodeError(f"snappy block of {length} bytes where {len(view) - position} remain")
        part = _decompress_snappy_block(view[position : position + length], left)
        left -= len(part)
        position += length
        yield part


def _decompress_snappy_block(data: Buffer, limit: int) -> bytes:
    size = _snappy_size(data)
    if size > limit:
        raise _too_large(limit)
    # A copy takes three bytes and yields at most 64, so a larger size is impossible.
    if size > len(data) * 32:
        raise DecodeError(f"snappy block of {len(data)} bytes claims {size}")
    found: bytes = _codec("snappy", None).decompress(data, size, asbytes=True)
    return found


def _snappy_size(data: Buffer) -> int:
    """The uncompressed size, a 32-bit varint at the start of a raw snappy block."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise DecodeError("snappy data has no size")


def _lz4_parts(data: Buffer, limit: int, part_bytes_max: int | None) -> Iterator[memoryview]:
    return _stream_parts("lz4", data, limit, part_bytes_max)


def _zstd_parts(data: Buffer, limit: int, part_bytes_max: int | None) -> Iterator[memoryview]:
    return _stream_parts("zstd", data, limit, part_bytes_max)


def _stream_parts(
    name: str, data: Buffer, limit: int, part_bytes_max: int | None
) -> Iterator[memoryview]:
    """Decompress piece by piece, so that memory depends on the data and not on a claimed size.

    Into Arrow's buffers, because ``read`` leaks its bytes at malformed data.
    """
    size = 0
    pa = _arrow()
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        step = max(_FIRST_CHUNK_BYTES, 4 * len(data))
        while True:
            if part_bytes_max is not None:
                step = min(step, part_bytes_max)
            part = memoryview(stream.read_buffer(min(step, limit + 1 - size))).cast("B")
            if not part:
                break
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            yield part
            step = max(step, size)


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
    """The codec of Arrow; it keeps no state between calls, so threads may share it."""
    return _arrow().Codec(name, compression_level=level)


def _arrow() -> Any:
    """Arrow, imported on first use: it takes 40 MB, and an idle broker does not need it."""
    import pyarrow

    return pyarrow


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"a batch holds more than {limit} bytes when decompressed")


_Parts = Iterator[bytes] | Iterator[memoryview]
_DECOMPRESSORS: Final[dict[Compression, Callable[[Buffer, int, int | None], _Parts]]] = {
    Compression.GZIP: _gzip_parts,
    Compression.SNAPPY: _snappy_parts,
    Compression.LZ4: _lz4_parts,
    Compression.ZSTD: _zstd_parts,
}
