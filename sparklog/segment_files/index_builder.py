"""The builder of index entries for the batches of one segment, in the order of the file.

Owns: the rule that decides which batches get an entry (``LogSegment.append``), and the packed
entries of an append or of a rebuild.  Must not know files.
"""

from collections.abc import Iterable

from sparklog.segment_files.index_entries import OFFSET_ENTRY, TIME_ENTRY, TimestampOffset
from sparklog.types import MAX_INT32, MAX_INT64, NO_TIMESTAMP
from sparklog.wire.records.batch import LOG_OVERHEAD, BatchHeader


class IndexBuilder:
    """Builds ``offsets`` and ``times``, the packed entries of the batches that are added.

    To extend existing indexes, give ``largest``, the segment's largest timestamp, and
    ``indexed_timestamp``, the timestamp of the last time entry.  At most ``entries_max`` entries
    are built.
    """

    __slots__ = ("_base_offset", "_indexed", "_interval", "_offset_bytes_max", "bytes_since_entry",
                 "largest", "offsets", "times")  # fmt: skip

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int,
        *,
        bytes_since_entry: int = 0,
        largest: TimestampOffset | None = None,
        indexed_timestamp: int = NO_TIMESTAMP,
        entries_max: int = MAX_INT64,
    ) -> None:
        self._base_offset = base_offset
        self._interval = interval_bytes
        self._indexed = indexed_timestamp
        self._offset_bytes_max = entries_max * OFFSET_ENTRY.size
        self.bytes_since_entry = bytes_since_entry
        self.largest = largest or TimestampOffset(NO_TIMESTAMP, base_offset)
        self.offsets = bytearray()
        self.times = bytearray()

    def add(self, last_offset: int, position: int, size: int, max_timestamp: int) -> None:
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        if self.bytes_since_entry > self._interval and len(self.offsets) < self._offset_bytes_max:
            relative = last_offset - self._base_offset
            if 0 <= relative <= MAX_INT32:
                self.offsets += OFFSET_ENTRY.pack(relative, position)
                self.finish()
                self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def add_all(self, headers: Iterable[BatchHeader], position: int) -> int:
        """Add adjacent batches from ``position`` on; return where they end."""
        since, interval = self.bytes_since_entry, self._interval
        largest = self.largest.timestamp
        for header in headers:
            size = header.batch_length + LOG_OVERHEAD
            if since > interval or header.max_timestamp > largest:
                self.bytes_since_entry = since
                self.add(header.last_offset, position, size, header.max_timestamp)
                since, largest = self.bytes_since_entry, self.largest.timestamp
            else:
                since += size
            position += size
        self.bytes_since_entry = since
        return position

    def finish(self) -> None:
        """Add the time entry for the largest timestamp so far."""
        timestamp = self.largest.timestamp
        if timestamp > self._indexed:
            relative = self.largest.offset - self._base_offset
            self.times += TIME_ENTRY.pack(timestamp, relative)
            self._indexed = timestamp
