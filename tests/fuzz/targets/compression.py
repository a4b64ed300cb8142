"""Targets: the decompression of each codec, within its bound."""

from collections.abc import Callable, Iterator

from sparklog.types import Compression
from sparklog.wire.records.compression import compress, decompress
from tests.fuzz.target import Target

LIMIT_BYTES = 64 * 1024


def _decoder(codec: Compression) -> Callable[[bytes], None]:
    def decode(data: bytes) -> None:
        assert len(decompress(codec, data, LIMIT_BYTES)) <= LIMIT_BYTES

    return decode


def _seeds(codec: Compression) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for plain in (b"", b"a", b"hello world " * 20, bytes(range(256)), bytes(LIMIT_BYTES + 1)):
            yield bytes(compress(codec, plain))
        if codec is Compression.SNAPPY:
            block = bytes(compress(codec, b"hello world " * 20))
            yield (
                b"\x82SNAPPY\x00"
                + bytes((0, 0, 0, 1, 0, 0, 0, 1))
                + len(block).to_bytes(4, "big")
                + block
            )

    return seeds


TARGETS = [
    Target(name=codec.name.lower(), decode=_decoder(codec), seeds=_seeds(codec))
    for codec in Compression
    if codec is not Compression.NONE
]
