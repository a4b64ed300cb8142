"""The check of the index files of a segment against its batches.

Owns: whether each entry is right, and whether none is missing.  Must not know files.

The indexes of a local segment are hints, which are rebuilt from the log when a lookup finds a wrong
entry.  The indexes in a bucket are never rebuilt, so wrong ones must not get there.
"""

import struct
from collections.abc import Iterator

from sparklog.errors import CorruptLogError
from sparklog.remote_log.index_search import offset_entries, time_entries
from sparklog.segment_files.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetPosition,
    TimestampOffset,
)
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import BatchHeader, Buffer


class OffsetIndexCheck:
    """The check of an offset index: ``visit`` every batch in order, then ``finish``.

    All methods raise CorruptLogError, which names the index file and the entry's byte.
    """

    def __init__(self, path: str, data: Buffer, base_offset: int) -> None:
        self._file = _IndexFile(path, data, OFFSET_ENTRY)
        self._entries: Iterator[OffsetPosition] = offset_entries(data, base_offset)
        self._next = next(self._entries, None)
        self._checked = 0

    def visit(self, header: BatchHeader, position: int) -> bool:
        """Check the entry of a batch; return whether the batch has one."""
        due = self._next
        if due is None or due.position > position:
            return False
        if due != (header.last_offset, position) or position == 0:
            raise self._file.error(
                self._checked,
                f"the entry {due} fits no batch; one at {position} ends at {header.last_offset}",
            )
        self._next = next(self._entries, None)
        self._checked += 1
        return True

    def finish(self) -> None:
        if self._next is not None:
            raise self._file.error(self._checked, f"the entry {self._next} is behind the log")


class TimeIndexCheck:
    """The check of a time index: ``visit`` every batch in order, then ``finish``.

    A lookup relies on an entry for the largest timestamp so far at each entry of the offset index,
    and at the end of the segment.  All methods raise CorruptLogError.
    """

    def __init__(self, path: str, data: Buffer, base_offset: int) -> None:
        self._file = _IndexFile(path, data, TIME_ENTRY)
        self._entries: Iterator[TimestampOffset] = time_entries(data, base_offset)
        self._next = next(self._entries, None)
        self._checked = 0
        self._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._indexed = NO_TIMESTAMP

    def visit(self, header: BatchHeader, *, has_entry: bool) -> None:
        """Check the entries up to a batch, which may have an entry in the offset index."""
        if header.max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
            if self._next == self._largest:
                self._indexed = self._next.timestamp
                self._next = next(self._entries, None)
                self._checked += 1
            elif self._next is not None and self._next.timestamp <= self._largest.timestamp:
                raise self._file.error(
                    self._checked, f"the entry {self._next} fits no batch up to {self._largest}"
                )
        if has_entry:
            self._require_largest()

    def finish(self) -> None:
        self._require_largest()
        if self._next is not None:
            raise self._file.error(self._checked, f"the entry {self._next} fits no batch")

    def _require_largest(self) -> None:
        if self._indexed < self._largest.timestamp:
            raise self._file.error(self._checked, f"the entry {self._largest} is missing")


class _IndexFile:
    """The path and the contents of an index file.  Raises CorruptLogError unless it has whole
    entries; a file of a sealed segment is trimmed."""

    def __init__(self, path: str, data: Buffer, entry: struct.Struct) -> None:
        if len(data) % entry.size:
            raise CorruptLogError(path, len(data), f"an entry has {entry.size} bytes")
        self.path = path
        self.data = data
        self.entry = entry

    def error(self, index: int, reason: str) -> CorruptLogError:
        """The error for the entry of this number."""
        return CorruptLogError(self.path, index * self.entry.size, reason)
