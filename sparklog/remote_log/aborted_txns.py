"""The aborted transactions that have records in a segment (the part ``aborted``).

Owns: bytes <-> entries, and which entries overlap a range of offsets.  Must not know objects or
logs.

The transaction index of a local segment has the transactions whose markers lie in that segment, so
a reader may have to look into later segments.  This list is complete by itself: it has every
aborted transaction with an offset in the segment, although its first record may lie in an earlier
segment and its marker in a later one.  A segment is copied only below the last stable offset, where
every transaction is decided.

An entry, big endian: producer id, first offset, last offset (of the marker), i64 each.  Entries are
in the order of their markers, as in a Fetch response.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sparklog.errors import DecodeError
from sparklog.wire.records.batch import Buffer

_ENTRY: Final = struct.Struct(">qqq")


class RemoteAbortedTxn(NamedTuple):
    """A transaction from its first record to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def encode_aborted(entries: Iterable[RemoteAbortedTxn]) -> bytes:
    """The bytes of the part; the entries are in the order of their markers."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def decode_aborted(data: Buffer) -> tuple[RemoteAbortedTxn, ...]:
    """The entries.  Raises DecodeError."""
    if len(data) % _ENTRY.size:
        raise DecodeError(f"a list of aborted transactions is cut off after {len(data)} bytes")
    entries = tuple(map(RemoteAbortedTxn._make, _ENTRY.iter_unpack(data)))
    check_aborted(entries)
    return entries


def check_aborted(entries: Sequence[RemoteAbortedTxn]) -> None:
    """Raises DecodeError for entries that cannot be true together."""
    for entry in entries:
        if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset:
            raise DecodeError(f"an aborted transaction cannot be {entry}")
    for before, after in pairwise(entries):
        if before.last_offset >= after.last_offset:
            raise DecodeError(f"the markers of aborted transactions do not ascend at {after}")


def overlapping(
    entries: Sequence[RemoteAbortedTxn], start: int, end: int
) -> tuple[RemoteAbortedTxn, ...]:
    """The transactions with an offset in [start, end), in the order of their markers."""
    begin = bisect_left(entries, start, key=lambda entry: entry.last_offset)
    return tuple(entry for entry in entries[begin:] if entry.first_offset < end)
