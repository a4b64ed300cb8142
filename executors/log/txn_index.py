"""The ``.txnindex`` of a segment: the aborted transactions whose markers lie in it.

Owns: entries in a file that exists only while there are some, in the order of their markers
(``TransactionIndex``).  Must not know batches or producers.

An entry, big endian (``AbortedTxn``): version i16 = 0, producer id, first offset, last offset (of
the marker) and last stable offset as of the marker, i64 each.  Without an entry, a reader would
take aborted data for committed, so unlike the other indexes this index is no hint: wrong entries
are rebuilt from the log.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.storage_backends.base import FileHalf

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
#: Bytes of an entry.
ENTRY_BYTES: Final = _ENTRY.size
_LAST_OFFSET: Final = struct.Struct(">18xq8x")


class AbortedTxn(NamedTuple):
    """A transaction from its first record to its abort marker.

    ``last_stable_offset``: below it, every transaction was decided once the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """One index file; the file cache opens it for every use."""

    __slots__ = ("_files", "_half", "_leftover", "base_offset", "entries", "path", "stale")

    def __init__(self, half: FileHalf, files: FileCache, path: str, base_offset: int) -> None:
        self._half = half
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.entries = 0
        #: The contents of the file are unknown or wrong: call ``replace`` before any other use.
        self.stale = False
        #: The file may exist although it should not.
        self._leftover = False

    @property
    def size(self) -> int:
        """Bytes of the entries."""
        return self.entries * _ENTRY.size

    def attach(self, files: FileCache) -> None:
        """Open the file through this cache from now on."""
        self._files = files

    def close(self) -> None:
        self._files.drop(self.path)

    # writing

    def append(self, aborted: AbortedTxn) -> None:
        """Add the entry of a marker before the marker is written.

        Raises StorageError, and then nothing has changed.
        """
        try:
            if not self.entries:
                self._half.open(self.path, create=True).close()
            handle = self._files.handle(self._half, self.path, self.size)
            handle.writev([_ENTRY.pack(_VERSION, *aborted)])
        except StorageError:
            self._cut(self.entries)
            raise
        self.entries += 1

    def undo(self) -> None:
        """Remove the last entry, because its marker was not written."""
        self._cut(self.entries - 1)

    def truncate_to(self, offset: int) -> None:
        """Forget transactions that ended at or after ``offset``.  Raises StorageError."""
        if self.entries:
            self._cut(self._first_ending_from(self._read(), offset))
            self.trim()

    def trim(self) -> None:
        """Leave nothing on the disk but the entries.  Raises StorageError."""
        if self._leftover:
            self._files.drop(self.path)
            if self.entries:
                self._half.truncate(self.path, self.size)
            else:
                self._half.delete(self.path)
            self._leftover = False

    def replace(self, aborted: Sequence[AbortedTxn]) -> None:
        """Replace all entries, durably.  Raises StorageError."""
        self._files.drop(self.path)
        if aborted:
            self._half.put(self.path, pack_txn_index(aborted))
        else:
            self._half.delete(self.path)
        self.entries, self.stale, self._leftover = len(aborted), False, False

    # reading

    def collect(self, start: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions with offsets in [start, end), and whether no later segment has more."""
        found: list[AbortedTxn] = []
        data = self._read()
        for index in range(self._first_ending_from(data, start), self.entries):
            txn = AbortedTxn._make(_ENTRY.unpack_from(data, index * _ENTRY.size)[1:])
            if txn.first_offset < end:
                found.append(txn)
            if txn.last_stable_offset >= end:
                return found, True
        return found, False

    def read_all(self) -> list[AbortedTxn]:
        return unpack_txn_index(self._read())

    def load(self, next_offset: int) -> None:
        """Take over the file of a segment that ends at ``next_offset``; ``stale`` if it is damaged.

        Raises StorageError.
        """
        data = self._half.read(self.path)
        try:
            aborted = unpack_txn_index(data, self.base_offset, next_offset)
        except DecodeError:
            self.stale = True
        else:
            self.entries = len(aborted)
            self._leftover = not aborted

    def _read(self) -> bytes:
        if not self.entries:
            return b""
        return self._files.handle(self._half, self.path, self.size).read(0, self.size)

    def _first_ending_from(self, data: bytes, offset: int) -> int:
        return bisect_left(
            range(self.entries),
            offset,
            key=lambda index: _LAST_OFFSET.unpack_from(data, index * _ENTRY.size)[0],
        )

    def _cut(self, entries: int) -> None:
        """Keep the first ``entries`` entries.

        If the file cannot be truncated now, the next opening or ``trim`` truncates it.
        """
        self.entries = entries
        self._leftover = True
        with suppress(StorageError):
            self.trim()


def pack_txn_index(aborted: Sequence[AbortedTxn]) -> bytes:
    """The bytes of a file with these entries."""
    return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in aborted)


def unpack_txn_index(
    data: bytes | memoryview, base_offset: int = 0, next_offset: int | None = None
) -> list[AbortedTxn]:
    """The entries of a file, checked against each other and against the offsets of their segment.

    Raises DecodeError naming the byte.
    """
    whole = len(data) - len(data) % _ENTRY.size
    found: list[AbortedTxn] = []
    before = AbortedTxn(0, 0, base_offset - 1, 0)
    for position in range(0, whole, _ENTRY.size):
        version, *fields = _ENTRY.unpack_from(data, position)
        txn = AbortedTxn._make(fields)
        if version != _VERSION:
            raise DecodeError(f"transaction index entry at byte {position} has version {version}")
        if not (
            txn.producer_id >= 0
            and 0 <= txn.first_offset < txn.last_offset
            and before.last_offset < txn.last_offset
            and before.last_stable_offset <= txn.last_stable_offset <= txn.last_offset + 1
            and (next_offset is None or txn.last_offset < next_offset)
        ):
            raise DecodeError(f"transaction index entry at byte {position} cannot be true: {txn}")
        found.append(txn)
        before = txn
    if whole != len(data):
        raise DecodeError(f"transaction index entry at byte {whole} is cut off")
    return found
