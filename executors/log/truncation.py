"""The truncation of one log: the files that are changed, and their order.

Owns: the recovery point and log starts while a truncation is under way, and the truncation itself,
of the clean offset, segments, snapshots, leader epochs and producer state, each step durable before
the next.  Must not know why a log is truncated.
"""

from typing import NamedTuple, TypeAlias
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.clean_offset import CleanOffset
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.flush import FlushState, save_epochs
from sparklog.executors.log.full_truncation import begin_full_truncation, end_full_truncation
from sparklog.executors.log.gap_marker import GapMarker
from sparklog.executors.log.partition_metadata import claim_partition_dir
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment_list import restore_producers
from sparklog.storage_backends.base import FileHalf

#: The start of the whole log, and that of its files here.
LogStarts: TypeAlias = tuple[int, int]


class TieredStart(NamedTuple):
    """Where a log starts anew whose earlier records are only in the bucket.

    ``offset`` is the start of the files and ``log_start_offset`` that of the whole log.
    ``leader_epochs`` are those below the offset.  ``producer_snapshot`` is the producer state at
    the offset, as in a ``.snapshot`` file; None if it is not known.
    """

    offset: int
    log_start_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    producer_snapshot: bytes | None


class LogTruncation:
    """The truncations of one log, one after the other."""

    __slots__ = (
        "_clean_offset",
        "_epochs",
        "_flush",
        "_gap_marker",
        "_half",
        "_partition_dir",
        "_producers",
        "_roller",
        "_segments",
        "_snapshots",
        "_starts_before",
        "_topic_id",
        "next_log_start",
    )

    def __init__(
        self,
        half: FileHalf,
        partition_dir: str,
        topic_id: UUID | None,
        epochs: EpochCache,
        roller: Roller,
        flush: FlushState,
        clean_offset: CleanOffset,
        gap_marker: GapMarker,
    ) -> None:
        self._half = half
        self._partition_dir = partition_dir
        self._topic_id = topic_id
        self._epochs = epochs
        self._roller = roller
        self._flush = flush
        self._clean_offset = clean_offset
        self._gap_marker = gap_marker
        self._segments = roller.segments
        self._snapshots = roller.snapshots
        self._producers = roller.producers
        #: The log starts when the truncation began.
        self._starts_before: LogStarts = (0, 0)
        #: The later log start that the truncation under way leaves; 0 if it leaves none.
        self.next_log_start = 0

    def begin(
        self, offset: int, starts: LogStarts, *, fully: bool, next_log_start: int
    ) -> LogStarts:
        """Lower the recovery point to the lowest end that the truncation may leave.

        With ``fully``, nothing is left of the log.  Returns the log starts to use until the
        truncation ends.
        """
        self._starts_before, self.next_log_start = starts, next_log_start
        if fully:
            starts = min(starts[0], offset), min(starts[1], offset)
            self._flush.begin_truncation(starts[1])
        else:
            self._flush.begin_truncation(self._segments.base_below(offset))
        return starts

    def end(self, starts: LogStarts) -> LogStarts:
        """End the truncation, completed or abandoned.  Returns the log starts from now on."""
        self.next_log_start = 0
        return self._starts_before if self._flush.abandon_truncation() else starts

    def truncate_to(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop every batch that ends at or above ``offset``, which is not below the first segment.

        Blocks.  A StorageError leaves a log that must not be used.
        """
        clean_offset = self._clean_offset.offset
        if clean_offset is not None and offset < clean_offset:
            # The whole segment: the log ends at the base offset of the batch that holds ``offset``.
            self._clean_offset.lower(self._segments.base_below(offset))
        # Otherwise the offset stays: a second truncation must know which records were compacted.
        self._segments.truncate_to(offset)
        self._half.flush_folder(self._partition_dir)
        # The last batches below the clean offset may have been dropped by the cleaning.
        self._clean_offset.lower(self._segments.end_offset)
        self._segments.active.activate(config)
        self._epochs.truncate_from_end(self._segments.end_offset)
        save_epochs(self._half, self._partition_dir, self._epochs)
        restore_producers(self._producers, self._snapshots, self._segments, now_ms)

    def truncate_fully_and_start_at(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop everything; the log starts and ends at ``offset``.  See ``truncate_to``."""
        compacted = self._clean_offset.offset is not None or self._gap_marker.is_set
        if compacted:
            begin_full_truncation(self._half, self._partition_dir, offset)
        self._drop_all(offset, config, now_ms)
        if compacted:
            end_full_truncation(self._half, self._partition_dir)

    def start_in_tier(self, start: TieredStart, config: TopicConfig, now_ms: int) -> None:
        """Drop everything; the files start and end at the offset of ``start``, with its state.

        After a crash before the end, the log starts and ends at the log start offset: no start may
        find the files without the state below them.  Blocks.  A StorageError, also for a producer
        snapshot that is none, leaves a log that must not be used.
        """
        begin_full_truncation(self._half, self._partition_dir, start.log_start_offset)
        self._drop_all(start.offset, config, now_ms)
        if start.producer_snapshot is not None:
            self._snapshots.put(start.offset, start.producer_snapshot)
            try:
                self._producers.load_snapshot(start.producer_snapshot, now_ms)
            except DecodeError as error:
                raise StorageError(f"{self._snapshots.path(start.offset)}: {error}") from error
        self._epochs.take_over(start.leader_epochs, start.offset)
        self._epochs.truncate_from_start(start.log_start_offset, start.offset)
        save_epochs(self._half, self._partition_dir, self._epochs)
        end_full_truncation(self._half, self._partition_dir)

    def _drop_all(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        self._segments.truncate_fully_and_start_at(
            lambda: self._roller.create(offset, config, now_ms)
        )
        self._snapshots.delete_all()
        # A directory that has vanished was made again by the first write.
        claim_partition_dir(self._half, self._partition_dir, self._topic_id)
        self._half.flush_folder(self._partition_dir)
        self._producers.clear()
        self._epochs.clear()
        save_epochs(self._half, self._partition_dir, self._epochs)
        self._clean_offset.lower(offset)
