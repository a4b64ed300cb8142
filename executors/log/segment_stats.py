"""The measurement of a sealed segment, and the check whether an old measurement still holds.

Owns: the work of a worker thread on one segment's files: its statistics, and its indexes too,
because one walk over the batches gives both.  Must not know the other segments, or how the
statistics are used.
"""

import logging
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.errors import DecodeError
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.replace_file import replace_file
from sparklog.executors.log.spans import iter_headers
from sparklog.executors.log.time_index import TimeIndex
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.segment_files.index_entries import Checksum
from sparklog.segment_files.stats_file import (
    STATS_HEADER_BYTES,
    SegmentStats,
    TimestampRange,
    decode_stats,
    decode_stats_header,
    encode_stats,
)
from sparklog.storage_backends.base import FileHalf, MissingPathError
from sparklog.types import MAX_INT64, TimestampType
from sparklog.wire.records.batch import BATCH_OVERHEAD, BatchHeader, read_header

#: Bytes of batches that one read takes.
_GROUP_BYTES: Final = 1 << 20
#: The range of records that cannot be decoded: they may have any timestamp.
_ANY_TIME: Final = (-MAX_INT64 - 1, MAX_INT64)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """The files of one segment, for any thread; nothing else of the segment is used here.

    ``number`` tells the segment from a cleaned segment that has taken over its paths.
    """

    half: FileHalf
    number: int
    base_offset: int
    log_path: str
    index_path: str
    time_index_path: str
    stats_path: str
    log_size: int
    interval_bytes: int

    def check(self) -> SegmentStats | None:
        """The header of the ``.stats``, if it describes log and indexes as they are on the disk.

        Blocks, any thread.  Raises StorageError.
        """
        stats = self.read_header()
        if stats is None:
            return None
        for path, known, width in (
            (self.index_path, stats.offset_index, OffsetIndex.ENTRY.size),
            (self.time_index_path, stats.time_index, TimeIndex.ENTRY.size),
        ):
            data = self.read(path)
            if (
                data is None
                or len(data) % width
                or Checksum(len(data) // width, crc32c(data)) != known
            ):
                return None
        return stats

    def read_header(self) -> SegmentStats | None:
        """The header of the ``.stats``, if it is whole and of this log file."""
        data = self.read(self.stats_path, STATS_HEADER_BYTES)
        if data is None:
            return None
        try:
            stats = decode_stats_header(data)
        except DecodeError as error:
            logger.warning("%s is passed by: %s", self.stats_path, error)
            return None
        return stats if self._is_of_log(stats) else None

    def read_stats(self) -> SegmentStats | None:
        """The whole ``.stats``, if it is sound, of this log file, and has ranges.  Blocks."""
        data = self.read(self.stats_path)
        if data is None:
            return None
        try:
            stats = decode_stats(data, self.base_offset)
        except DecodeError as error:
            logger.warning("%s is passed by: %s", self.stats_path, error)
            return None
        return stats if stats.ranges is not None and self._is_of_log(stats) else None

    def rewrite_index(self, path: str, packed: bytes) -> None:
        """Write the right entries to an index file that has other entries."""
        if self.read(path) != packed:
            logger.warning("%s does not fit its log: it is made anew", path)
            replace_file(self.half, path, packed, durable=True)

    def write_stats(self, stats: SegmentStats) -> None:
        """Replace the ``.stats`` file; the replacement is atomic unless the machine crashes."""
        data = encode_stats(stats, self.base_offset)
        replace_file(self.half, self.stats_path, data, durable=False)

    def read(self, path: str, size: int | None = None) -> bytes | None:
        try:
            return self.half.read(path, 0, size)
        except MissingPathError:
            return None

    def _is_of_log(self, stats: SegmentStats) -> bool:
        """Whether the size and the last batch of the log file are as measured."""
        if stats.log_size != self.log_size or not 0 <= stats.last_position < self.log_size:
            return False
        head = self.half.read(self.log_path, stats.last_position, BATCH_OVERHEAD)
        if len(head) < BATCH_OVERHEAD:
            return False
        last = read_header(head)
        return (
            last.crc == stats.last_crc
            and last.next_offset == stats.next_offset
            and stats.last_position + last.size == self.log_size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of a measurement: the contents of both index files, and the statistics."""

    offsets: bytes
    times: bytes
    stats: SegmentStats


class Measuring:
    """A running measurement: call ``measure_more`` until it returns False, then ``finish``.

    ``measure_more`` blocks, and may run in any thread.  It raises StorageError, and CorruptLogError
    where the log is damaged.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self._position = 0
        self._builder = IndexBuilder(files.base_offset, files.interval_bytes)
        #: First offset of each interval, and the timestamps of its batches.
        self._firsts = [files.base_offset]
        self._times: list[list[tuple[int, int]]] = [[]]
        self._last: tuple[BatchHeader, int] | None = None

    def measure_more(self) -> bool:
        """Measure some more batches; return whether any are left."""
        files = self.files
        handle = files.half.open(files.log_path)
        group: list[tuple[BatchHeader, bytes]] = []
        owners: list[int] = []
        limit = self._position + _GROUP_BYTES
        try:
            for header, position in iter_headers(handle, self._position, files.log_size):
                if position >= limit:
                    break
                self._note(header, position)
                if header.record_count == 0:
                    pass  # emptied by compaction
                elif header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                    self._times[-1].append((header.max_timestamp, header.max_timestamp))
                else:
                    group.append((header, handle.read(position, header.size)))
                    owners.append(len(self._firsts) - 1)
                self._position = position + header.size
        finally:
            handle.close()
        self._take(group, owners)
        return self._position < files.log_size

    def finish(self) -> "Measured":
        """The result; nothing is written yet.  Does not block."""
        self._builder.finish()
        offsets, times = bytes(self._builder.offsets), bytes(self._builder.times)
        return Measured(offsets=offsets, times=times, stats=self._stats(offsets, times))

    def _note(self, header: BatchHeader, position: int) -> None:
        """Index a batch; a batch with an entry begins a new interval."""
        entries = len(self._builder.offsets)
        self._builder.add(header.last_offset, position, header.size, header.max_timestamp)
        if len(self._builder.offsets) > entries:
            self._firsts.append(header.base_offset)
            self._times.append([])
        self._last = header, position

    def _take(self, group: list[tuple[BatchHeader, bytes]], owners: list[int]) -> None:
        if not group:
            return
        # Imported only here, because it imports NumPy.
        from sparklog.wire.records.record_times import record_times

        for owner, pair in zip(owners, record_times(group), strict=True):
            self._times[owner].append(_ANY_TIME if pair is None else pair)

    def _stats(self, offsets: bytes, times: bytes) -> SegmentStats:
        assert self._last is not None, f"{self.files.log_path} is empty"
        header, position = self._last
        # An interval without records belongs to the interval before it.
        filled = [
            (first, found) for first, found in zip(self._firsts, self._times, strict=True) if found
        ]
        ends = [*(first for first, _ in filled[1:]), header.next_offset][: len(filled)]
        ranges = [
            TimestampRange(first, end, min(t[0] for t in found), max(t[1] for t in found))
            for (first, found), end in zip(filled, ends, strict=True)
        ]
        return SegmentStats(
            log_size=self.files.log_size,
            next_offset=header.next_offset,
            last_position=position,
            last_crc=header.crc,
            largest=self._builder.largest,
            offset_index=Checksum(len(offsets) // OffsetIndex.ENTRY.size, crc32c(offsets)),
            time_index=Checksum(len(times) // TimeIndex.ENTRY.size, crc32c(times)),
            ranges=ranges,
        )
