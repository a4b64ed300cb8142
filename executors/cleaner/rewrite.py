"""The rewrite of a log's segments, from a job to its report.

Owns: the two walks, over the dirty head for the latest offsets and over everything below its end
for the rewrite, and the removal of files after a failure.  Must not know processes or clocks.

Memory is bounded by ``dedupe_buffer_size``, a window of batches and their decompressed records.
The dirty head is taken up to where the map is full; the next cleaning goes on there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from sparklog.errors import CorruptLogError, DecodeError, StorageError
from sparklog.executors.cleaner.batch_filter import BatchFilter, add_latest
from sparklog.executors.cleaner.batch_reader import Batch, SegmentReader, Throttle
from sparklog.executors.cleaner.job import (
    CleaningJob,
    CleaningReport,
    CleaningStats,
    SourceSegment,
)
from sparklog.executors.cleaner.latest_offsets import LatestOffsets
from sparklog.executors.cleaner.transactions import CleanedTransactions
from sparklog.executors.log import AbortedTxn, CleanedGroup, CleanedWriter, read_aborted
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import read_header

#: The largest window of batches, which grows with the map, because a lookup pays for many keys.
_WINDOW_BYTES_MAX = 8 << 20
#: The share of the map's memory for one window of batches that are added.
_ADDED_SHARE = 32


def unthrottled(size: int) -> None:
    """The throttle that never waits."""


def clean(half: FileHalf, job: CleaningJob, throttle: Throttle = unthrottled) -> CleaningReport:
    """Write the ``.cleaned`` files of a job, durably.  Blocks.

    A group of one segment that loses no record is left out of the report.  Raises StorageError,
    and CorruptLogError for segments that cannot be read; then no files are left, if the disk allows
    their removal.
    """
    rewrite = _Rewrite(half, job, throttle)
    try:
        return rewrite.run()
    except BaseException:
        rewrite.discard()
        raise


class _Rewrite:
    def __init__(self, half: FileHalf, job: CleaningJob, throttle: Throttle) -> None:
        self._half = half
        self._job = job
        self._throttle_by = throttle
        self._bytes_read = self._bytes_written = 0
        self._writers: list[CleanedWriter] = []

    def run(self) -> CleaningReport:
        job = self._job
        aborted = read_aborted(self._half, job.partition_dir, job.aborted_entries)
        latest, end_offset = self._find_latest(aborted)
        keep = BatchFilter(
            latest,
            _transactions(aborted, job.groups[0][0].base_offset),
            end_offset=end_offset,
            now_ms=job.now_ms,
            delete_horizon_ms=job.delete_horizon_ms,
            expires_below=job.expires_below,
            producers=job.producers,
        )
        window_bytes = max(job.io_buffer_size, min(latest.key_bytes, _WINDOW_BYTES_MAX))
        groups = [
            self._clean_group(group, keep, window_bytes)
            for group in job.groups
            if group[0].base_offset < end_offset and any(segment.size for segment in group)
        ]
        counts = keep.counts
        return CleaningReport(
            groups=tuple(group for group in groups if group is not None),
            clean_offset=end_offset,
            stats=CleaningStats(
                bytes_read=self._bytes_read,
                bytes_written=self._bytes_written,
                records_read=counts.records_read,
                records_kept=counts.records_kept,
                keyless=counts.keyless,
                keys=len(latest),
            ),
        )

    def discard(self) -> None:
        """Remove the files that were written."""
        for writer in self._writers:
            with suppress(StorageError):
                writer.close()
                writer.discard()

    def _find_latest(self, aborted: Sequence[AbortedTxn]) -> tuple[LatestOffsets, int]:
        """The latest offsets of the slice, and where the slice ends."""
        job = self._job
        latest = LatestOffsets(job.first_dirty, job.dedupe_buffer_size)
        dirty = [
            segment
            for group in job.groups
            for segment in group
            if segment.next_offset > job.first_dirty
        ]
        end_offset = job.end_offset
        transactions: CleanedTransactions | None = None
        window_bytes = min(job.dedupe_buffer_size // _ADDED_SHARE, _WINDOW_BYTES_MAX)
        for batches, path in self._windows(dirty, max(job.io_buffer_size, window_bytes)):
            if transactions is None:
                transactions = _transactions(aborted, batches[0].header.base_offset)
            with _named(path):
                full_at = add_latest(latest, batches, transactions)
            if full_at is not None:
                end_offset = full_at
                break
        latest.finish()
        return latest, max(end_offset, job.first_dirty)

    def _clean_group(
        self, group: Sequence[SourceSegment], keep: BatchFilter, window_bytes: int
    ) -> CleanedGroup | None:
        job, changed = self._job, keep.counts.changed
        # No more than the open files of one group: the others are finished.
        writer = CleanedWriter(
            self._half, job.partition_dir, group[0].base_offset, job.index_interval_bytes
        )
        self._writers.append(writer)
        last_end = max(segment.next_offset for segment in group)
        for batches, path in self._windows(group, window_bytes):
            with _named(path):
                for kept in keep.filter(batches, last_end):
                    writer.append(kept, read_header(kept))
                    self._bytes_written += len(kept)
                    self._throttle_by(len(kept))
            for aborted in keep.take_aborted():
                writer.append_aborted(aborted)
        if len(group) == 1 and keep.counts.changed == changed:
            writer.close()
            writer.discard()
            return None
        segment = writer.finish()
        assert segment.next_offset == last_end, (segment, group)
        return CleanedGroup(
            segment=segment, replaced=tuple(segment.base_offset for segment in group)
        )

    def _windows(
        self, segments: Sequence[SourceSegment], window_bytes: int
    ) -> Iterator[tuple[list[Batch], str]]:
        for segment in segments:
            reader = SegmentReader(
                self._half, self._job.partition_dir, segment.base_offset, segment.size
            )
            for batches in reader.windows(window_bytes, self._throttle):
                yield batches, reader.path

    def _throttle(self, size: int) -> None:
        self._bytes_read += size
        self._throttle_by(size)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise undecodable records as damage of this file."""
    try:
        yield
    except DecodeError as error:
        raise CorruptLogError(path, 0, f"its records cannot be compacted: {error}") from error


def _transactions(aborted: Sequence[AbortedTxn], start: int) -> CleanedTransactions:
    """The transactions of a walk from the offset ``start`` on."""
    return CleanedTransactions(txn for txn in aborted if txn.last_offset >= start)
