"""New indexes for a copy that begins inside the file of a segment.

Owns: which batches get entries, and the entries, as ``LogSegment.append`` makes them.  Must not
know files.

Replicas roll their segments at different places, so the first segment that a new leader copies may
begin below the end of what is in the bucket.  Only the rest of it is copied, and the entries of its
own indexes are relative to its own base offset and to the start of its file.
"""

from sparklog.remote_log.index_search import OFFSET_ENTRY, TIME_ENTRY, TimeEntry
from sparklog.types import MAX_INT32, NO_TIMESTAMP
from sparklog.wire.records.batch import BatchHeader


class IndexBuild:
    """Builds ``offsets`` and ``times``: ``visit`` every batch in order, then ``finish``."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self._largest = TimeEntry(NO_TIMESTAMP, base_offset)
        self._indexed = NO_TIMESTAMP
        self.offsets = bytearray()
        self.times = bytearray()

    def visit(self, header: BatchHeader, position: int) -> None:
        if header.max_timestamp > self._largest.timestamp:
            self._largest = TimeEntry(header.max_timestamp, header.last_offset)
        relative = header.last_offset - self._base_offset
        if self._bytes_since_entry > self._interval_bytes and relative <= MAX_INT32:
            self.offsets += OFFSET_ENTRY.pack(relative, position)
            self.finish()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def finish(self) -> None:
        """Add the entry for the largest timestamp so far."""
        timestamp, offset = self._largest
        if timestamp > self._indexed:
            self.times += TIME_ENTRY.pack(timestamp, offset - self._base_offset)
            self._indexed = timestamp
