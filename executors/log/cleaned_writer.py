"""Writing the files of a cleaned segment.

Owns: the ``.cleaned`` files while they grow, and their removal when a cleaning fails.  Must not
know which batches are kept, or the segments that are replaced.

The files have the formats of a sealed segment's.  They are durable when ``finish`` returns.  The
partition directory is never made: a topic that is deleted meanwhile must not come back as one.
"""

from collections.abc import Sequence

from sparklog.errors import CorruptLogError, DecodeError
from sparklog.executors.log.cleaned_segments import (
    CLEANED_SUFFIX,
    CLEANED_SUFFIXES,
    CleanedSegment,
)
from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.time_index import TimeIndex
from sparklog.executors.log.txn_index import (
    ENTRY_BYTES,
    AbortedTxn,
    pack_txn_index,
    unpack_txn_index,
)
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.storage_backends.base import FileHalf
from sparklog.types import MAX_INT32
from sparklog.wire.records.batch import BatchHeader, Buffer

#: Bytes that are collected before they are written.
_WRITE_BYTES = 1 << 20


class CleanedWriter:
    """The files of one cleaned segment.  ``append`` in order, then ``finish`` or ``discard``."""

    def __init__(
        self, half: FileHalf, partition_dir: str, base_offset: int, index_interval_bytes: int
    ) -> None:
        self._half = half
        self._partition_dir = partition_dir
        self._base_offset = base_offset
        self.discard()
        self._handle = half.open(self._path(LOG_SUFFIX), create=True)
        self._index = IndexBuilder(base_offset, index_interval_bytes)
        self._aborted: list[AbortedTxn] = []
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._next_offset = base_offset
        #: Bytes of the log file, including the bytes that are not written yet.
        self.size = 0

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch.  Raises StorageError; CorruptLogError for a segment beyond 2 GiB."""
        if self.size + len(batch) > MAX_INT32:
            raise CorruptLogError(
                self._path(LOG_SUFFIX), self.size, "the cleaned segment would exceed 2 GiB"
            )
        assert header.base_offset >= self._next_offset, (header, self._next_offset)
        self._index.add(header.last_offset, self.size, len(batch), header.max_timestamp)
        self._next_offset = header.next_offset
        self.size += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def append_aborted(self, aborted: AbortedTxn) -> None:
        """Add the entry of an abort marker of this segment."""
        self._aborted.append(aborted)

    def finish(self) -> CleanedSegment:
        """Write everything durably and close the files.  Raises StorageError."""
        self._write()
        self._handle.flush()
        self._handle.close()
        self._index.finish()
        self._create(INDEX_SUFFIX, self._index.offsets)
        self._create(TIME_INDEX_SUFFIX, self._index.times)
        if self._aborted:
            self._create(TXN_INDEX_SUFFIX, pack_txn_index(self._aborted))
        self._half.flush_folder(self._partition_dir)
        return CleanedSegment(
            base_offset=self._base_offset,
            next_offset=self._next_offset,
            size=self.size,
            largest_timestamp=self._index.largest.timestamp,
            largest_offset=self._index.largest.offset,
            offset_entries=len(self._index.offsets) // OffsetIndex.ENTRY.size,
            time_entries=len(self._index.times) // TimeIndex.ENTRY.size,
            aborted_entries=len(self._aborted),
        )

    def close(self) -> None:
        """Close the log file; the files stay as they are."""
        self._handle.close()

    def discard(self) -> None:
        """Remove the files, also those that an earlier cleaning has left."""
        for suffix in CLEANED_SUFFIXES:
            self._half.delete(self._path(suffix))

    def _write(self) -> None:
        if self._waiting:
            self._handle.writev(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

    def _create(self, suffix: str, data: Buffer) -> None:
        # Not ``put``, which makes a missing directory.
        handle = self._half.open(self._path(suffix), create=True)
        try:
            if data:
                handle.writev([data])
            handle.flush()
        finally:
            handle.close()

    def _path(self, suffix: str) -> str:
        return f"{self._partition_dir}/{file_name(self._base_offset, suffix)}{CLEANED_SUFFIX}"


def remove_cleaned(half: FileHalf, partition_dir: str) -> int:
    """Remove all ``.cleaned`` files of a partition; return how many.  Raises StorageError."""
    left = [name for name in half.list(partition_dir) if name.endswith(CLEANED_SUFFIX)]
    for name in left:
        half.delete(f"{partition_dir}/{name}")
    return len(left)


def read_aborted(
    half: FileHalf, partition_dir: str, entries: Sequence[tuple[int, int]]
) -> list[AbortedTxn]:
    """The aborted transactions of segments, given as (base offset, number of entries) pairs.

    Entries behind that number are not read: the segment may be active.  Raises StorageError, and
    CorruptLogError for entries that cannot be true.
    """
    found: list[AbortedTxn] = []
    for base_offset, count in entries:
        if count:
            path = f"{partition_dir}/{file_name(base_offset, TXN_INDEX_SUFFIX)}"
            data = half.read(path, 0, count * ENTRY_BYTES)
            if len(data) != count * ENTRY_BYTES:
                raise CorruptLogError(path, len(data), "transaction index entries are missing")
            try:
                found += unpack_txn_index(data, base_offset)
            except DecodeError as error:
                raise CorruptLogError(path, 0, str(error)) from error
    return found
