"""Codecs, compared with the libraries of other clients."""

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.records.compression import compress, decompress

CODECS = [codec for codec in Compression if codec]
RANDOM = random.Random(7).randbytes(9 * 1024 * 1024)
SIZES = [0, 1, 100, 65_536, 65_537, 262_145, 1_048_577, 4_194_305, len(RANDOM)]


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    blocks = [
        snappy.compress(data[start : start + block_bytes])
        for start in range(0, len(data), block_bytes)
    ]
    body = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + body


def read_by_others(codec: Compression, data: bytes) -> bytes:
    if codec is Compression.GZIP:
        return gzip.decompress(data)
    if codec is Compression.SNAPPY:
        return bytes(snappy.uncompress(data))
    if codec is Compression.LZ4:
        return bytes(lz4.frame.decompress(data))
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", SIZES)
def test_others_read_what_we_compress(codec: Compression, size: int) -> None:
    for plain in (RANDOM[:size], b"ab" * (size // 2)):
        packed = compress(codec, memoryview(plain))
        assert read_by_others(codec, packed) == plain
        assert decompress(codec, packed) == plain


def test_no_codec_gives_the_bytes_themselves() -> None:
    assert compress(Compression.NONE, memoryview(b"abc")) == b"abc"
    assert decompress(Compression.NONE, b"abc") == b"abc"


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_levels_are_passed_on(codec: Compression, level: int) -> None:
    plain = RANDOM[:1000] * 50
    assert decompress(codec, compress(codec, plain, level)) == plain


def test_gzip_level_0_stores() -> None:
    plain = bytes(10_000)
    assert len(compress(Compression.GZIP, plain, 0)) > len(plain)
    assert len(compress(Compression.GZIP, plain)) < 100


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    for size in SIZES[1:]:
        info = lz4.frame.get_frame_info(compress(Compression.LZ4, RANDOM[:size]))
        assert not info["block_linked"]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_any_kind_are_read(linked: bool, checksum: bool) -> None:
    plain = RANDOM[:1000] * 300
    packed = lz4.frame.compress(
        plain, block_linked=linked, content_checksum=checksum, block_checksum=checksum
    )
    assert decompress(Compression.LZ4, packed) == plain


def test_zstd_without_a_content_size_is_read() -> None:
    worker = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = worker.compress(RANDOM[:5000] * 40) + worker.flush()
    assert decompress(Compression.ZSTD, packed) == RANDOM[:5000] * 40


@pytest.mark.parametrize("size", [1, 100, 40_000, 200_000])
def test_snappy_is_read_raw_and_in_xerial_framing(size: int) -> None:
    plain = (RANDOM[:1000] * 200)[:size]
    assert decompress(Compression.SNAPPY, snappy.compress(plain)) == plain
    assert decompress(Compression.SNAPPY, memoryview(xerial(plain))) == plain


def test_gzip_members_follow_each_other() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed) == b"one two"


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_data_is_a_decode_error(codec: Compression) -> None:
    packed = compress(codec, b"hello world " * 5000)
    for damaged in (packed[:-1], packed[: len(packed) // 2], packed + b"x", b"\xff" + packed):
        with pytest.raises(DecodeError):
            decompress(codec, damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_random_data_is_a_decode_error_or_bounded(codec: Compression) -> None:
    chance = random.Random(11)
    packed = bytearray(compress(codec, b"hello world " * 500))
    for _ in range(300):
        damaged = bytearray(packed)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with contextlib.suppress(DecodeError):
            assert len(decompress(codec, damaged, 100_000)) <= 100_000


@pytest.mark.parametrize("damaged", [b"\x7f", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_lying_xerial_blocks_are_decode_errors(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(Compression.SNAPPY, xerial(b"x") + damaged)


@pytest.mark.parametrize("codec", Compression)
def test_the_limit_holds_to_the_byte(codec: Compression) -> None:
    packed = compress(codec, bytes(100_000))
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(DecodeError, match="more than 99999 bytes"):
        decompress(codec, packed, 99_999)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_take_memory(codec: Compression) -> None:
    if codec is Compression.GZIP:
        worker = zlib.compressobj(wbits=31)
        packed = b"".join([worker.compress(bytes(2**20)) for _ in range(64)] + [worker.flush()])
    else:
        packed = compress(codec, bytes(2**26))
    tracemalloc.start()
    with pytest.raises(DecodeError):
        decompress(codec, packed, 2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24


def test_a_bomb_in_xerial_framing_is_bounded_as_a_whole() -> None:
    with pytest.raises(DecodeError):
        decompress(Compression.SNAPPY, xerial(bytes(2**20)), 2**19)
