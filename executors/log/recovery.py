"""The recovery of segments: after a crash, or where their indexes cannot be trusted.

Owns: the check of every batch above the recovery point, the truncation of a torn tail, and the
rebuilding of indexes and leader epochs.  Must not know which segments are trusted, producer state
or roles.

Flushed records are never truncated.  Damage below the recovery point is noted in a segment that has
a next segment, because then its end is known; in the last segment it is a CorruptLogError.  After a
clean stop everything was flushed.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import takewhile

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError
from sparklog.executors.log.damaged_segments import keep_damaged
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.epoch_order import EpochOrder
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.scan import scan_batches
from sparklog.executors.log.segment import Segment
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.storage_backends.base import FileHalf
from sparklog.types import MAX_INT32, MAX_INT64
from sparklog.wire.records.batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The work of an opening; all zero after a clean stop."""

    segments_recovered: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    indexes_rebuilt: int = 0
    batches_replayed: int = 0


class LogRecovery:
    """The recovery of one log while it is loaded; it changes ``segments`` and ``epochs``."""

    __slots__ = (
        "_compacted",
        "_config",
        "_epochs",
        "_files",
        "_half",
        "_partition_dir",
        "_recovery_point",
        "_segments",
        "promised_end",
        "report",
        "with_markers",
    )

    def __init__(
        self,
        *,
        half: FileHalf,
        partition_dir: str,
        config: TopicConfig,
        files: FileCache,
        segments: list[Segment],
        epochs: EpochCache,
        recovery_point: int,
        local_log_start_offset: int,
        compacted: bool,
    ) -> None:
        """``compacted``: the log may have gaps (``gap_marker``)."""
        self._half = half
        self._partition_dir = partition_dir
        self._config = config
        self._files = files
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = recovery_point
        self._compacted = compacted
        #: The log must not end below this offset; 0 if all flushed records have been deleted.
        #: Retention moves the local log start to the end and deletes files without a flush; a crash
        #: can bring some of them back.
        self.promised_end = recovery_point if recovery_point > local_log_start_offset else 0
        self.report = RecoveryReport()
        #: Whether a rebuilt segment has control batches, by base offset.
        self.with_markers: dict[int, bool] = {}

    def recover(self, first: int) -> None:
        """Recover every segment from ``first`` on, which holds the recovery point."""
        segments, whole = self._segments, True
        # Above the recovery point there are only appends, which leave no gaps unless the log was
        # compacted.
        gapless_from = MAX_INT64 if self._compacted else self._recovery_point
        order = EpochOrder(self._epochs, self._recovery_point)
        for index in range(first, len(segments)):
            if index > first and not _meets(segments[index - 1], segments[index], whole):
                self._drop_from(index)
                break
            self._count(segments_recovered=1)
            whole = self.rebuild(
                segments[index],
                check_end=self.promised_end,
                gapless_from=gapless_from,
                order=order,
                flushed_end=self._flushed_end(index),
            )
            if order.torn_from is not None:
                self._cut(order.torn_from)
                break
        # An earlier start may have cut the log here, and ended before that was durable.
        self._half.flush(segments[-1].log_path)
        self._half.flush_folder(self._partition_dir)

    def follows(self, before: Segment, segment: Segment) -> bool:
        """Whether no record is lost between two segments that were flushed.

        A log that Kafka has compacted has gaps between segments too.
        """
        gap = segment.base_offset - before.next_offset
        return _meets(before, segment) or (gap > 0 and self._compacted)

    def rebuild(
        self,
        segment: Segment,
        *,
        check_end: int,
        gapless_from: int = MAX_INT64,
        order: EpochOrder | None = None,
        flushed_end: int | None = None,
    ) -> bool:
        """Check every batch and rebuild the indexes; return whether the segment was whole.

        A damaged tail is truncated, unless it holds offsets below ``check_end``.  If the whole
        segment was flushed, up to ``flushed_end``, it keeps its bytes, and the damaged ranges are
        noted.
        """
        builder = IndexBuilder(segment.base_offset, self._config.index_interval_bytes)
        self.with_markers[segment.base_offset] = False

        def visit(header: BatchHeader, position: int) -> None:
            if header.is_control:
                self.with_markers[segment.base_offset] = True
            builder.add(header.last_offset, position, header.size, header.max_timestamp)
            if order is None or order.add(header.partition_leader_epoch, header.base_offset):
                self._note_epoch(header)

        handle = self._half.open(segment.log_path)
        try:
            scan = scan_batches(handle, segment.base_offset, visit, gapless_from=gapless_from)
            self._count(bytes_scanned=handle.size())
            if scan.damage is not None:
                if flushed_end is not None:
                    keep_damaged(segment, handle, flushed_end, scan.damage)
                    self._files.drop(segment.log_path)
                    # Markers may lie in the damaged ranges: keep the transaction index.
                    del self.with_markers[segment.base_offset]
                    self._count(indexes_rebuilt=1)
                    return True
                if scan.next_offset < check_end:
                    raise CorruptLogError(handle.path, scan.valid_size, scan.damage)
                self._count(bytes_truncated=handle.size() - scan.valid_size)
                handle.truncate(scan.valid_size)
                # After a crash the old tail could reappear below the recovery point.
                handle.flush()
        finally:
            handle.close()
        self._files.drop(segment.log_path)
        segment.size = scan.valid_size
        segment.next_offset = scan.next_offset
        segment.indexes.replace(builder)
        self._count(indexes_rebuilt=1)
        return scan.damage is None

    def learn_epochs(self) -> None:
        """Rebuild the leader epochs from all batches."""
        self._epochs.clear()
        for segment in self._segments:
            for header, _ in segment.batches_from(segment.base_offset):
                self._note_epoch(header)

    def learn_first_epochs(self, log_start_offset: int) -> None:
        """Learn the epochs of the records below the first known one.

        A crash may bring back records below the log start, whose epochs are forgotten: the epochs
        may be flushed before the checkpoint of the log start is.
        """
        if not self._epochs.entries:
            return
        known_from = self._epochs.entries[0].start_offset
        if known_from <= max(log_start_offset, self._segments[0].base_offset):
            return
        found = EpochCache()
        for segment in self._segments:
            if segment.base_offset < known_from:
                headers = (header for header, _ in segment.batches_from(segment.base_offset))
                found.assign_all(takewhile(lambda each: each.base_offset < known_from, headers))
        self._epochs.take_over(found.entries, known_from)

    def _flushed_end(self, index: int) -> int | None:
        """Where a segment ends that was flushed whole; None for a segment that may be torn."""
        segments, following = self._segments, index + 1
        end = segments[following].base_offset if following < len(segments) else MAX_INT64
        return end if end <= self.promised_end else None

    def _cut(self, offset: int) -> None:
        """End the log at ``offset``, which is not below the recovery point."""
        segments = self._segments
        bases = [segment.base_offset for segment in segments]
        last = bisect_right(bases, offset) - 1
        self._drop_from(last + 1)
        size = segments[last].size
        segments[last].truncate_to(offset)
        self._count(bytes_truncated=size - segments[last].size)

    def _drop_from(self, index: int) -> None:
        """Remove the segments after a torn one: the records before them are lost."""
        segments = self._segments
        for segment in reversed(segments[index:]):
            self._count(bytes_truncated=segment.size)
            segment.remove()
        if index < len(segments):
            # Otherwise the segments may come back in place of new records.
            self._half.flush_folder(self._partition_dir)
        del segments[index:]

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        else:
            self._epochs.correct(header.partition_leader_epoch, header.base_offset)

    def _count(self, **more: int) -> None:
        known = {name: getattr(self.report, name) + value for name, value in more.items()}
        self.report = replace(self.report, **known)


def _meets(before: Segment, segment: Segment, whole: bool = True) -> bool:
    """Whether there is no gap between two segments.

    The tail of the earlier segment may be gone without a trace, at the end of a batch, while the
    later segment reached the disk.  Segments meet in a compacted log too, because the last batch of
    a cleaned segment stays.  A gap is in order where an offset was too large for the relative
    offsets of the earlier segment, which must be ``whole`` then.
    """
    gap = segment.base_offset - before.next_offset
    leapt = segment.base_offset - before.base_offset > MAX_INT32
    return gap == 0 or (gap > 0 and leapt and whole)
