"""The ``.txnindex`` of a segment: the aborted transactions whose markers lie in it.

Owns: entries in a file that exists only while there are some, in the order of their markers
(``TransactionIndex``), and which of them a lookup reads.  Must not know batches or producers.

An entry, big endian (``AbortedTxn``): version i16 = 0, producer id, first offset, last offset (of
the marker) and last stable offset as of the marker, i64 each.  Without an entry, a reader would
take aborted data for committed, so unlike the other indexes this index is no hint: wrong entries
are rebuilt from the log.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.txn_index_blocks import BLOCK_BYTES, BLOCK_ENTRIES, TxnIndexBlocks
from sparklog.storage_backends.base import FileHalf, shrunk_error

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
#: Bytes of an entry.
ENTRY_BYTES: Final = _ENTRY.size
_LAST_OFFSET: Final = struct.Struct(">18xq8x")
#: Bytes that are read at once where every entry is read.
_READ_BYTES: Final = 16 * BLOCK_BYTES


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

    __slots__ = (
        "_blocks",
        "_files",
        "_half",
        "_leftover",
        "base_offset",
        "entries",
        "path",
        "stale",
    )

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
        #: All blocks, or the first ones, which are whole; a lookup adds the others.
        self._blocks: TxnIndexBlocks | None = None

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
        if self._blocks is None:
            self._blocks = TxnIndexBlocks()
        if self._blocks.entries == self.entries:
            self._blocks.add(*aborted[1:])
        self.entries += 1

    def undo(self) -> None:
        """Remove the last entry, because its marker was not written."""
        self._cut(self.entries - 1)

    def truncate_to(self, offset: int) -> None:
        """Forget transactions that ended at or after ``offset``.  Raises StorageError."""
        if self.entries:
            block = self._all_blocks().block_ending_from(offset)
            within = _first_ending_from(self._read_block(block), offset)
            self._cut(min(block * BLOCK_ENTRIES + within, self.entries))
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
        self.stale = self._leftover = False
        self.adopt(len(aborted))

    def adopt(self, entries: int) -> None:
        """Take over a file with this number of right entries, in the place of what was there."""
        self.entries, self._blocks = entries, None

    # reading

    @property
    def last_offset(self) -> int:
        """The offset of the last marker; -1 without entries.  Raises StorageError."""
        return self._all_blocks().last_offset

    def collect(self, start: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions with offsets in [start, end), and whether no later segment has more.

        The entries are those of Kafka's ``collectAbortedTxns``.  Raises StorageError.
        """
        if not self.entries:
            return [], False
        blocks, complete = self._all_blocks().find(start, end)
        found: list[AbortedTxn] = []
        for block in blocks:
            data = self._read_block(block)
            begin = _first_ending_from(data, start) * _ENTRY.size
            for _, *fields in _ENTRY.iter_unpack(data[begin:]):
                txn = AbortedTxn._make(fields)
                if txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:
                    break
        return found, complete

    def read_all(self) -> list[AbortedTxn]:
        return unpack_txn_index(self._read(0, self.size)) if self.entries else []

    def load(self, next_offset: int) -> None:
        """Take over the file of a segment that ends at ``next_offset``; ``stale`` if it is damaged.

        Raises StorageError.
        """
        checked = _EntryCheck(self.base_offset, next_offset)
        blocks = TxnIndexBlocks()
        more = True
        try:
            while more:
                data = self._half.read(self.path, blocks.entries * _ENTRY.size, _READ_BYTES)
                for _ in checked.unpack(data):
                    pass
                blocks.add_blocks(data)
                more = len(data) == _READ_BYTES
        except DecodeError:
            self.stale = True
        else:
            self.entries = blocks.entries
            self._blocks = blocks if blocks.entries else None
            self._leftover = not blocks.entries

    def _all_blocks(self) -> TxnIndexBlocks:
        """The blocks of all entries."""
        blocks = self._blocks = self._blocks or TxnIndexBlocks()
        while blocks.entries < self.entries:
            position = blocks.entries * _ENTRY.size
            blocks.add_blocks(self._read(position, min(_READ_BYTES, self.size - position)))
        return blocks

    def _read_block(self, block: int) -> bytes:
        """The entries of a block; none behind the last block."""
        position = block * BLOCK_BYTES
        return self._read(position, max(min(BLOCK_BYTES, self.size - position), 0))

    def _read(self, position: int, size: int) -> bytes:
        handle = self._files.handle(self._half, self.path, self.size)
        data = handle.read(position, size)
        if len(data) < size:
            raise shrunk_error(handle.path, position + len(data), self.size)
        return data

    def _cut(self, entries: int) -> None:
        """Keep the first ``entries`` entries.

        If the file cannot be truncated now, the next opening or ``trim`` truncates it.
        """
        self.entries = entries
        self._leftover = True
        if self._blocks is not None:
            self._blocks.cut(entries)
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
    return list(_EntryCheck(base_offset, next_offset).unpack(data))


class _EntryCheck:
    """Checks entries against the entries before them, and against the offsets of their segment."""

    __slots__ = ("_before", "_next_offset", "_position")

    def __init__(self, base_offset: int, next_offset: int | None) -> None:
        self._before = AbortedTxn(0, 0, base_offset - 1, 0)
        self._next_offset = next_offset
        self._position = 0

    def unpack(self, data: bytes | memoryview) -> Iterator[AbortedTxn]:
        """The next entries.  Raises DecodeError naming the byte in the file."""
        whole = len(data) - len(data) % _ENTRY.size
        for version, *fields in _ENTRY.iter_unpack(data[:whole]):
            txn = AbortedTxn._make(fields)
            self._check(version, txn)
            self._before = txn
            self._position += _ENTRY.size
            yield txn
        if whole != len(data):
            raise DecodeError(f"transaction index entry at byte {self._position} is cut off")

    def _check(self, version: int, txn: AbortedTxn) -> None:
        position, before = self._position, self._before
        if version != _VERSION:
            raise DecodeError(f"transaction index entry at byte {position} has version {version}")
        if not (
            txn.producer_id >= 0
            and 0 <= txn.first_offset < txn.last_offset
            and before.last_offset < txn.last_offset
            and before.last_stable_offset <= txn.last_stable_offset <= txn.last_offset + 1
            and (self._next_offset is None or txn.last_offset < self._next_offset)
        ):
            raise DecodeError(f"transaction index entry at byte {position} cannot be true: {txn}")


def _first_ending_from(data: bytes, offset: int) -> int:
    """The number of the first of these entries whose marker is at or after ``offset``."""
    return bisect_left(
        range(len(data) // _ENTRY.size),
        offset,
        key=lambda number: _LAST_OFFSET.unpack_from(data, number * _ENTRY.size)[0],
    )
