"""The ``.timeindex`` of a segment: the largest timestamp so far, sparsely.

Owns: the lookups and the cuts of Kafka's ``TimeIndex``; ``index_entries`` has the format.  Must not
know batches.
"""

from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.index_file import IndexFile
from sparklog.segment_files.index_entries import TIME_ENTRY, TimestampOffset
from sparklog.storage_backends.base import FileHalf
from sparklog.types import NO_TIMESTAMP


class TimeIndex(IndexFile):
    ENTRY = TIME_ENTRY

    __slots__ = ("_last",)

    def __init__(self, half: FileHalf, files: FileCache, path: str, base_offset: int) -> None:
        super().__init__(half, files, path, base_offset)
        self._last: TimestampOffset | None = None

    @property
    def room(self) -> int:
        """Entries that may still be added; one slot is kept for when the segment is sealed."""
        return self.capacity - 1 - self.entries

    def extend(self, packed: bytes | bytearray) -> None:
        super().extend(packed)
        if packed:
            self._last = self._absolute(
                self.ENTRY.unpack_from(packed, len(packed) - self.ENTRY.size)
            )

    def lookup(self, timestamp: int) -> tuple[TimestampOffset, TimestampOffset | None]:
        """The last entry at or below ``timestamp``, and the next entry, if there is one.

        Without an entry at or below ``timestamp``, the first value is (-1, base offset).
        """
        slot = self._search(0, timestamp)
        before = self._absolute(self._entry(slot - 1) if slot else None)
        return before, self._absolute(self._entry(slot)) if slot < self.entries else None

    def entry_at(self, index: int) -> TimestampOffset:
        return self._absolute(self._entry(index))

    def last(self) -> TimestampOffset:
        if self._last is None:
            self._last = self._absolute(self._entry(self.entries - 1) if self.entries else None)
        return self._last

    def truncate_to(self, offset: int) -> None:
        """Forget entries of batches that end at or after ``offset``."""
        relative = offset - self.base_offset
        keep = self.entries
        while keep and self._entry(keep - 1)[1] >= relative:
            keep -= 1
        self._cut(keep)
        self._last = None

    def adopt(self, entries: int) -> None:
        super().adopt(entries)
        self._last = None

    def _absolute(self, entry: tuple[int, ...] | None) -> TimestampOffset:
        if entry is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(entry[0], self.base_offset + entry[1])


def unpack_time_index(data: bytes | memoryview, base_offset: int) -> list[TimestampOffset]:
    """The entries of a time index file, without the empty slots of a preallocated one."""
    whole = len(data) - len(data) % TimeIndex.ENTRY.size
    entries: list[TimestampOffset] = []
    for timestamp, offset in TimeIndex.ENTRY.iter_unpack(data[:whole]):
        if entries and timestamp == 0 and offset == 0:
            break
        entries.append(TimestampOffset(timestamp, base_offset + offset))
    if entries == [TimestampOffset(0, base_offset)] and whole > TimeIndex.ENTRY.size:
        return []
    return entries
