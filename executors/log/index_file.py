"""The common base of both indexes of a segment: fixed-size entries in a preallocated, mapped file.

Owns: entry slots, growth, trimming and binary search (``AbstractIndex``).  Must not know the
meaning of the entries.  The map comes from the file cache for every use, so an index that is not in
use costs a few integers.
"""

import struct
from typing import ClassVar

from crc32c import crc32c

from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.replace_file import replace_file
from sparklog.segment_files.index_entries import Checksum
from sparklog.storage_backends.base import FileHalf

#: Lookups mostly hit the newest part of an index; searching only there touches few pages
#: (``AbstractIndex.WARM_ENTRIES``).
HOT_BYTES = 8192


class IndexFile:
    """One index file; ``capacity`` is the number of entries that it can take."""

    ENTRY: ClassVar[struct.Struct]

    __slots__ = ("_files", "_half", "base_offset", "capacity", "entries", "path")

    def __init__(self, half: FileHalf, files: FileCache, path: str, base_offset: int) -> None:
        self._half = half
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.entries = 0
        self.capacity = 0

    @property
    def size(self) -> int:
        """Bytes of the entries; the file of an active segment is longer."""
        return self.entries * self.ENTRY.size

    def allow(self, size_max: int) -> None:
        """Let the index grow to ``size_max`` bytes; its segment is active."""
        # The map that is open may be shorter.
        self._files.drop(self.path)
        self.capacity = max(size_max // self.ENTRY.size, self.entries)

    def attach(self, files: FileCache) -> None:
        """Open the file through this cache from now on."""
        self._files = files

    def extend(self, packed: bytes | bytearray) -> None:
        """Add entries, all or none.

        Raises StorageError on a full disk, where writing to the map would kill the process.
        """
        start = self.entries * self.ENTRY.size
        end = start + len(packed)
        assert end <= self.capacity * self.ENTRY.size, f"{self.path} is full"
        if packed:
            mapped = self._files.map(self._half, self.path, self.capacity * self.ENTRY.size)
            mapped.reserve(end)
            mapped.buffer[start:end] = packed
            self.entries = end // self.ENTRY.size

    def trim(self) -> None:
        """Cut the preallocated rest off; the index takes no more entries until ``allow``."""
        self._files.drop(self.path)
        if not self._half.exists(self.path) or self._half.size(self.path) > self.size:
            handle = self._half.open(self.path, create=True)
            try:
                if handle.size() > self.size:
                    handle.truncate(self.size)
            finally:
                handle.close()
        self.capacity = self.entries

    def replace(self, packed: bytes | bytearray) -> None:
        """Replace all entries."""
        assert len(packed) % self.ENTRY.size == 0
        replace_file(self._half, self.path, packed, durable=True)
        self.adopt(len(packed) // self.ENTRY.size)

    def adopt(self, entries: int) -> None:
        """Take over a file that has replaced this one, and has no room for more entries."""
        self._files.drop(self.path)
        self.entries = self.capacity = entries

    def checksum(self) -> Checksum:
        """The checksum of all entries."""
        packed = self.read_all()
        return Checksum(len(packed) // self.ENTRY.size, crc32c(packed))

    def read_all(self) -> bytes:
        """All entries of the file."""
        return bytes(self._buffer()[: self.size]) if self.entries else b""

    def _cut(self, entries: int) -> None:
        # The slots behind the last entry of a mapped index are zeros, as Kafka leaves them.
        if entries < self.entries:
            start, end = entries * self.ENTRY.size, self.size
            self._buffer()[start:end] = bytes(end - start)
            self.entries = entries

    def _entry(self, index: int) -> tuple[int, ...]:
        return self.ENTRY.unpack_from(self._buffer(), index * self.ENTRY.size)

    def _buffer(self) -> memoryview:
        return self._files.map(self._half, self.path, self.capacity * self.ENTRY.size).buffer

    def _search(self, column: int, target: int) -> int:
        """The number of entries whose ``column`` is at most ``target``; the hot end comes first."""
        return self._search_in(self._buffer(), column, target) if self.entries else 0

    def _last_up_to(self, column: int, target: int) -> tuple[int, ...] | None:
        """The last entry whose ``column`` is at most ``target``; None without such an entry."""
        if not self.entries:
            return None
        buffer = self._buffer()
        slot = self._search_in(buffer, column, target)
        return self.ENTRY.unpack_from(buffer, (slot - 1) * self.ENTRY.size) if slot else None

    def _search_in(self, buffer: memoryview, column: int, target: int) -> int:
        unpack, width = self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, self.entries
        hot = self.entries - HOT_BYTES // width
        if hot > 0:
            if unpack(buffer, hot * width)[column] > target:
                high = hot
            else:
                low = hot
        while low < high:
            middle = (low + high) // 2
            if unpack(buffer, middle * width)[column] > target:
                high = middle
            else:
                low = middle + 1
        return low
