"""The ``.index`` of a segment: where in the log file an offset is, sparsely.

Owns: the lookups and the cuts of Kafka's ``OffsetIndex``; ``index_entries`` has the format.  Must
not know batches.
"""

from sparklog.executors.log.index_file import IndexFile
from sparklog.segment_files.index_entries import OFFSET_ENTRY, OffsetPosition


class OffsetIndex(IndexFile):
    ENTRY = OFFSET_ENTRY

    __slots__ = ()

    @property
    def room(self) -> int:
        """The number of entries that may still be added."""
        return self.capacity - self.entries

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below ``offset``; the segment's start without such an entry."""
        return self._absolute(self._last_up_to(0, offset - self.base_offset))

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry whose batch starts at or below ``position``."""
        return self._absolute(self._last_up_to(1, position))

    def entry_at(self, index: int) -> OffsetPosition:
        return self._absolute(self._entry(index))

    def last(self) -> OffsetPosition:
        return self._absolute(self._entry(self.entries - 1) if self.entries else None)

    def truncate_to(self, offset: int) -> None:
        """Forget entries of batches that end at or after ``offset``."""
        relative = offset - self.base_offset
        keep = self.entries
        while keep and self._entry(keep - 1)[0] >= relative:
            keep -= 1
        self._cut(keep)

    def _absolute(self, entry: tuple[int, ...] | None) -> OffsetPosition:
        """An entry with its offset in the log; the segment's start without an entry."""
        if entry is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + entry[0], entry[1])


def unpack_offset_index(data: bytes | memoryview, base_offset: int) -> list[OffsetPosition]:
    """The entries of an index file, without the empty slots of a preallocated one.

    Position 0 marks an empty slot: the first batch of a segment is never indexed.
    """
    whole = len(data) - len(data) % OffsetIndex.ENTRY.size
    entries: list[OffsetPosition] = []
    for offset, position in OffsetIndex.ENTRY.iter_unpack(data[:whole]):
        if position == 0:
            break
        entries.append(OffsetPosition(base_offset + offset, position))
    return entries
