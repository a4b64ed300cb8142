"""The ``.txnindex`` of a segment: the aborted transactions whose markers lie in it.

Owns: bytes <-> entries.  Must not know batches or producers.

An entry, big endian (``AbortedTxn``): version i16 = 0, producer id, first offset, last offset (of
the marker) and last stable offset as of the marker, i64 each.
"""

import struct
from typing import Final, NamedTuple

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """A transaction from its first record to its abort marker.

    ``last_stable_offset``: below it, every transaction was decided once the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
