"""The offset and the time index of one segment, and how they keep up with its log file.

Owns: the entries of an append, when the indexes take entries, and the state of the indexes: the
largest timestamp, whether they are checked, whether they are on the disk.  Must not know the log
file; the segment reads it.
"""

from collections.abc import Sequence

from sparklog.config import TopicConfig
from sparklog.errors import StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.time_index import TimeIndex
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.segment_files.index_entries import TimestampOffset
from sparklog.wire.records.batch import BatchHeader


class SegmentIndexes:
    """Both indexes of one segment; they are open for entries between ``activate`` and ``seal``."""

    __slots__ = (
        "_largest",
        "_size_max",
        "bytes_since_entry",
        "interval_bytes",
        "largest_known",
        "offsets",
        "times",
        "times_known",
        "unflushed",
    )

    def __init__(self, offsets: OffsetIndex, times: TimeIndex, interval_bytes: int) -> None:
        self.offsets = offsets
        self.times = times
        #: ``index.interval.bytes`` of this segment.
        self.interval_bytes = interval_bytes
        #: Bytes of the log file behind the batch of the last offset entry, that batch included.
        self.bytes_since_entry = 0
        #: The largest timestamp so far; None until the time index is read.
        self._largest: TimestampOffset | None = None
        #: Maximum size of each index in bytes; 0 once the segment is sealed.
        self._size_max = 0
        #: Whether ``largest``, and the whole time index, were checked against the log file.
        self.largest_known = self.times_known = True
        #: Whether the entries of a sealed segment may not be on the disk yet.
        self.unflushed = False

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch that has it."""
        if self._largest is None:
            self._largest = self.times.last()
        return self._largest

    @property
    def full(self) -> bool:
        return self.offsets.room <= 0 or self.times.room <= 0

    def attach(self, files: FileCache) -> None:
        """Open the files through this cache from now on."""
        self.offsets.attach(files)
        self.times.attach(files)

    # writing

    def activate(self, config: TopicConfig) -> None:
        """Take entries, with these settings."""
        self.unflushed = False
        self.interval_bytes = config.index_interval_bytes
        self._size_max = config.segment_index_bytes
        self._allow()

    def builder(self) -> IndexBuilder:
        """The builder of the next append's entries.  It may read an index: raises StorageError."""
        return IndexBuilder(
            self.offsets.base_offset,
            self.interval_bytes,
            bytes_since_entry=self.bytes_since_entry,
            largest=self.largest,
            indexed_timestamp=self.times.last().timestamp,
            entries_max=max(0, min(self.offsets.room, self.times.room)),
        )

    def append(self, builder: IndexBuilder, position: int, headers: Sequence[BatchHeader]) -> None:
        """Write the entries of batches that are in the log file already.

        When the disk has no room, both indexes may lack the entries, or only the offset index: the
        time index never covers less.  The log does not need them, so the append stays.
        """
        end = builder.add_all(headers, position)
        self._largest = builder.largest
        try:
            self.times.extend(builder.times)
            self.offsets.extend(builder.offsets)
        except StorageError:
            self.bytes_since_entry += end - position
        else:
            self.bytes_since_entry = builder.bytes_since_entry

    def finish(self) -> None:
        """Write the last entry of the time index, and cut both files behind their entries."""
        builder = self.builder()
        builder.finish()
        self.times.extend(builder.times)
        self.trim()

    def seal(self) -> None:
        """Take no more entries; the indexes are finished."""
        self._size_max = 0
        self.unflushed = True

    def trim(self) -> None:
        """Cut both files behind their entries."""
        self.offsets.trim()
        self.times.trim()

    def truncate_to(self, offset: int) -> None:
        """Forget the entries of batches that end at or after ``offset``."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)

    def replace(self, builder: IndexBuilder) -> None:
        """Replace both indexes by rebuilt ones."""
        if not self._size_max:
            builder.finish()
        self.offsets.replace(builder.offsets)
        self.times.replace(builder.times)
        self._largest = builder.largest
        self.largest_known = self.times_known = True
        self.bytes_since_entry = builder.bytes_since_entry
        self.unflushed = not self._size_max
        if self._size_max:
            self._allow()

    # loading

    def load(self, offsets: int, times: int) -> None:
        """Take over the files of a sealed segment, which have this many entries."""
        for index, entries in ((self.offsets, offsets), (self.times, times)):
            index.entries = index.capacity = entries
        self.largest_known = self.times_known = False

    def trust_largest(self, largest: TimestampOffset) -> None:
        """Take over the largest timestamp from elsewhere; the files are not checked."""
        self._largest = largest
        self.largest_known, self.times_known = True, False

    def adopt(self, path: str, size: int) -> None:
        """Take over an index file that was rewritten from the log file and has ``size`` bytes."""
        for index in (self.offsets, self.times):
            if index.path == path:
                index.adopt(size // index.ENTRY.size)

    def forget_largest(self) -> None:
        """The largest timestamp is that of the time index, until batches are noted."""
        self._largest = self.times.last()

    def note(self, timestamp: int, last_offset: int) -> None:
        """Note a batch that the time index may not cover."""
        if timestamp > self.largest.timestamp:
            self._largest = TimestampOffset(timestamp, last_offset)

    def _allow(self) -> None:
        self.offsets.allow(self._size_max)
        self.times.allow(self._size_max)
