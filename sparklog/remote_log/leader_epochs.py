"""The leader epochs of a log up to the end of a segment (the part ``epochs``).

Owns: bytes <-> entries, and the epochs of a range of offsets.  Must not know objects or logs.

An entry, big endian: epoch i32 and the first offset that was written in it, i64.  Both ascend.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from sparklog.errors import DecodeError
from sparklog.remote_log.remote_segment import EpochStart
from sparklog.wire.records.batch import Buffer

_ENTRY: Final = struct.Struct(">iq")


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """The bytes of the part."""
    return b"".join(_ENTRY.pack(*entry) for entry in epochs)


def decode_epochs(data: Buffer) -> tuple[EpochStart, ...]:
    """The entries.  Raises DecodeError."""
    if len(data) % _ENTRY.size:
        raise DecodeError(f"a list of leader epochs is cut off after {len(data)} bytes")
    epochs = tuple(map(EpochStart._make, _ENTRY.iter_unpack(data)))
    check_epochs(epochs)
    return epochs


def check_epochs(epochs: Sequence[EpochStart]) -> None:
    """Raises DecodeError for epochs that cannot be true together."""
    for entry in epochs:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise DecodeError(f"a leader epoch cannot be {entry}")
    for before, after in pairwise(epochs):
        if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
            raise DecodeError(f"leader epochs do not ascend at {after}")


def epochs_between(epochs: Sequence[EpochStart], start: int, end: int) -> tuple[EpochStart, ...]:
    """The epochs of the offsets [start, end); the first of them begins at ``start``.

    There is no epoch for offsets below the first known epoch.
    """
    found: list[EpochStart] = []
    for epoch, start_offset in epochs:
        if start_offset <= start:
            found = [EpochStart(epoch, start)]
        elif start_offset < end:
            found.append(EpochStart(epoch, start_offset))
    return tuple(found)
