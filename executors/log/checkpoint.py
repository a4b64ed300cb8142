"""Kafka's checkpoint text files: a version, a count, one entry a line.

Owns: text <-> entries of ``leader-epoch-checkpoint``, ``recovery-point-offset-checkpoint`` and
``log-start-offset-checkpoint`` (``CheckpointFile``, version 0).  Must not know where the files are
kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.errors import DecodeError
from sparklog.types import MAX_INT64, TopicPartition

CHECKPOINT_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Entries in the order of the file.  Raises DecodeError."""
    entries: list[EpochEntry] = []
    for line in _decode(data):
        epoch, start_offset = _integers(line, line.split(" "), 2)
        if entries and (epoch <= entries[-1].epoch or start_offset < entries[-1].start_offset):
            raise DecodeError(f"checkpoint line {line!r} is not above the one before it")
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The text of a checkpoint with one offset per partition."""
    return _encode([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises DecodeError."""
    found: dict[TopicPartition, int] = {}
    for line in _decode(data):
        topic, _, numbers = line.partition(" ")
        partition, offset = _integers(line, numbers.split(" "), 2)
        found[TopicPartition(topic, partition)] = offset
    return found


def _encode(lines: list[str]) -> bytes:
    return "".join(
        f"{line}\n" for line in [str(CHECKPOINT_VERSION), str(len(lines)), *lines]
    ).encode()


def _decode(data: bytes) -> list[str]:
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a checkpoint file is not text: {error}") from error
    if len(lines) < 2 or not data.endswith(b"\n"):
        raise DecodeError("a checkpoint file is cut off")
    version, count = (_integers(line, [line], 1)[0] for line in lines[:2])
    if version != CHECKPOINT_VERSION:
        raise DecodeError(f"checkpoint version {version} is not known")
    if count != len(lines) - 2:
        raise DecodeError(f"a checkpoint file says {count} entries and has {len(lines) - 2}")
    return lines[2:]


def _integers(line: str, words: list[str], count: int) -> list[int]:
    if len(words) != count or not all(map(_is_number, words)):
        raise DecodeError(f"checkpoint line {line[:100]!r} cannot be read")
    return [int(word) for word in words]


def _is_number(word: str) -> bool:
    """Whether the text is a number of at most 64 bits; Python refuses to read longer texts."""
    return (
        word.isascii()
        and word.isdigit()
        and len(word) <= len(str(MAX_INT64))
        and int(word) <= MAX_INT64
    )
