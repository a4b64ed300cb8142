"""Index entries for the batches of one segment, in the order of the file.

Owns: the rule which batches get an entry (``LogSegment.append``) and the packed entries of a
rebuild. Must not know files.
"""

from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.roll import fits_relative
from sparklog.executors.log.time_index import TimeIndex, TimestampOffset
from sparklog.types import NO_TIMESTAMP


class IndexBuilder:
    """Feed it every batch of a segment; ``offsets`` and ``times`` are the files' new contents."""

    __slots__ = ("_base_offset", "_indexed", "_interval", "_since", "largest", "offsets", "times")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval = interval_bytes
        self._since = 0
        self._indexed = NO_TIMESTAMP
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.offsets = bytearray()
        self.times = bytearray()

    @property
    def bytes_since_entry(self) -> int:
        return self._since

    def add(self, last_offset: int, position: int, size: int, max_timestamp: int) -> None:
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        if self._since > self._interval and fits_relative(self._base_offset, last_offset):
            self.offsets += OffsetIndex.ENTRY.pack(last_offset - self._base_offset, position)
            self.finish()
            self._since = 0
        self._since += size

    def finish(self) -> None:
        """The time entry that says what is the largest timestamp up to here."""
        if self.largest.timestamp > self._indexed:
            relative = self.largest.offset - self._base_offset
            self.times += TimeIndex.ENTRY.pack(self.largest.timestamp, relative)
            self._indexed = self.largest.timestamp
