"""Changes to valid inputs, from a seed: finds faults where no coverage-guided engine can be had.

Owns: the changes.  Must not know what the bytes mean.
"""

import random
import struct
from collections.abc import Callable, Sequence

#: At the edges of what lengths, counts and varints can say.
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
_FORMATS = (">B", ">H", ">I", ">Q", "<I")
_VARINTS = (
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\x01",
    b"\x80",
)
_WORDS = (b"-1", b"0", b"9" * 30, b"\n", b" ", b"null", b"[" * 50, b'"', b"\xd9\xa1", b"1_0")

Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def mutated(stream: random.Random, corpus: Sequence[bytes], size_max: int) -> bytes:
    """One input of the corpus with one to four changes."""
    data = bytearray(stream.choice(corpus))
    for _ in range(stream.randint(1, 4)):
        stream.choice(_CHANGES)(stream, data, corpus)
    return bytes(data[:size_max])


def _flip(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[stream.randrange(len(data))] ^= 1 << stream.randrange(8)


def _set(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[stream.randrange(len(data))] = stream.randrange(256)


def _number(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    layout = struct.Struct(stream.choice(_FORMATS))
    if len(data) >= layout.size:
        value = stream.choice(_NUMBERS) & (1 << 8 * layout.size) - 1
        layout.pack_into(data, stream.randrange(len(data) - layout.size + 1), value)


def _overwrite(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    piece = stream.choice(_VARINTS + _WORDS)
    at = stream.randrange(len(data) + 1)
    data[at : at + len(piece)] = piece


def _insert(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = stream.randrange(len(data) + 1)
    data[at:at] = stream.choice((*_VARINTS, *_WORDS, stream.randbytes(stream.randint(1, 8))))


def _remove(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = stream.randrange(len(data) + 1)
    del data[at : at + stream.randint(1, 8)]


def _cut(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[stream.randrange(len(data) + 1) :]


def _repeat(stream: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = stream.randrange(len(data) + 1)
    data[at:at] = data[at : at + stream.randint(1, 64)]


def _splice(stream: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = stream.choice(corpus)
    data[stream.randrange(len(data) + 1) :] = other[stream.randrange(len(other) + 1) :]


_CHANGES: tuple[Change, ...] = (
    *(_flip, _set, _number, _overwrite, _insert, _remove, _cut, _repeat, _splice),
)
