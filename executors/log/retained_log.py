"""The half of a log for its beginning: the log starts, and what is deleted below them.

Owns: where the log starts and where its files start, retention, and the order in which segments are
deleted.  Must not know appends, reads, the bucket, or what the log start is told to whom.

A log has two starts (KIP-405).  Nothing below the log start can be read any more.  The files begin
at the local log start, which is the same unless the log is tiered: then the records between the two
are in the bucket.
"""

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.log.deleted_segments import DeletedSegments
from sparklog.executors.log.durable_log import DurableLog
from sparklog.executors.log.log_loader import LoadedLog
from sparklog.executors.log.retention import NO_LIMITS, RetentionLimits, count_deletable
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.truncation import LogStarts
from sparklog.storage_backends.base import FileHalf
from sparklog.types import MAX_INT64, TopicPartition


class RetainedLog(DurableLog):
    """See ``Log``."""

    def __init__(
        self,
        *,
        half: FileHalf,
        partition_dir: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
        roller: Roller,
    ) -> None:
        super().__init__(
            half=half,
            partition_dir=partition_dir,
            topic_partition=topic_partition,
            config=config,
            loaded=loaded,
            roller=roller,
        )
        self._deleted = DeletedSegments(half)
        self._log_start_offset = loaded.log_start_offset
        self._local_log_start_offset = loaded.local_log_start_offset
        #: Records below this offset are in the bucket, as far as this broker knows.
        self.tiered_end_offset = 0
        #: How often the topic was switched off since the log was opened.  What was found out about
        #: the bucket before that does not count any more.
        self.remote_disable_count = 0

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log; ``local_log_start_offset`` may be a later one."""
        return self._log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset in the files here; nothing below can be read from them (KIP-405)."""
        return self._local_log_start_offset

    def out_of_range(self, offset: int) -> KafkaError:
        """The error of a read at this offset."""
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is outside "
            f"[{self.local_log_start_offset}, {self.log_end_offset}]",
        )

    def moved_to_tiered_storage(self, offset: int) -> KafkaError:
        """The error of a follower's read below the local log start (KIP-405)."""
        return KafkaError(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"offset {offset} of {self.topic_partition} is in the bucket only; the files begin at "
            f"{self.local_log_start_offset}",
        )

    def disable_remote(self) -> None:
        """The topic leaves the bucket, which from now on counts as empty."""
        self.tiered_end_offset = 0
        self.remote_disable_count += 1

    def advance_log_start(self, offset: int) -> bool:
        """Hide all records below ``offset`` (DeleteRecords).  Returns False if they are hidden.

        ``delete_old_segments`` frees the space later; the caller writes the checkpoint.  Raises
        KafkaError(OFFSET_OUT_OF_RANGE) beyond the log's end.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset <= self._log_start_offset:
            return False
        self._changed = True
        self._log_start_offset = offset
        self._local_log_start_offset = max(self._local_log_start_offset, offset)
        self.leader_epochs.truncate_from_start(offset, self.log_end_offset)
        return True

    def delete_old_segments(
        self, now_ms: int, stable_offset: int, *, noted_log_start: int = MAX_INT64
    ) -> int:
        """Apply retention by time, size and log start, to segments below ``stable_offset``.

        In a tiered log only the log start counts: ``local_retention_offset`` has the other rules.
        The same holds for a log that leaves the bucket, while there are records in the bucket only.
        The files of both, and of a log that has left the bucket and may be tiered again, go once
        the checkpoint has the log start: ``noted_log_start`` is what it has.  Otherwise the next
        start could take the records between an older log start and the first file for records in
        the bucket.
        Returns how many segments were deleted; ``purge_deleted`` removes their renamed files.
        """
        self._require_writable()
        if self.truncating or self.replacing:
            return 0
        config = self.config
        first_before = self._segments[0].base_offset
        is_tiered = config.remote_storage_enable or (
            config.leaves_remote_storage and self._log_start_offset < self._local_log_start_offset
        )
        if is_tiered:
            count = self._count_deletable(NO_LIMITS, now_ms, stable_offset, noted_log_start)
        else:
            limits = RetentionLimits.whole_log(config)
            count = self._count_deletable(limits, now_ms, stable_offset)
        if count == len(self._segments) and not self._has_rolled(now_ms):
            count -= 1
        if count and config.leaves_remote_storage and not is_tiered:
            self.advance_log_start(self._segments[count].base_offset)
            count = self._count_deletable(NO_LIMITS, now_ms, stable_offset, noted_log_start)
        try:
            self._delete_first(count, now_ms)
        finally:
            # Older records than those deleted have expired too, also in the bucket.  Without a
            # deletion the log start stays: the topic may be tiered again.
            first = self._segments[0].base_offset
            if first > first_before:
                self._log_start_offset = max(self._log_start_offset, first)
        self.leader_epochs.truncate_from_start(self._log_start_offset, self.log_end_offset)
        return count

    def _has_rolled(self, now_ms: int) -> bool:
        """Roll, so that all segments can go; False if the disk has no room for another one before
        the first ones are gone.  Raises StorageError."""
        try:
            self._roll(self.log_end_offset, now_ms)
        except StorageError as error:
            if not error.is_full or len(self._segments) == 1:
                raise
            return False
        return True

    def roll_expired(self, now_ms: int, stable_offset: int) -> bool:
        """Roll the active segment of a tiered log that is older than ``segment.ms``, or that the
        local retention would delete if it were in the bucket; whether it was rolled.

        Without further appends it would never be sealed, so that it was never copied and never
        expired.  A segment is at most as old as its first append by this process.  Otherwise each
        call would roll the segment that a backfill of old records fills.
        """
        if not self.config.remote_storage_enable or self.truncating or self.replacing:
            return False
        self._require_writable()
        limits = RetentionLimits(*self.config.local_retention)
        count = self._count_deletable(limits, now_ms, stable_offset)
        age_ms = now_ms - self._segments.active.first_append_ms
        is_expired = count == len(self._segments) and (limits.size == 0 or age_ms > limits.age_ms)
        is_due = is_expired or self._roller.is_due(self.config, now_ms)
        return is_due and self._roll(self.log_end_offset, now_ms)

    def _count_deletable(
        self,
        limits: RetentionLimits,
        now_ms: int,
        stable_offset: int,
        noted_log_start: int = MAX_INT64,
    ) -> int:
        return count_deletable(
            self.segments,
            limits=limits,
            log_start_offset=min(self._log_start_offset, noted_log_start),
            log_end_offset=self.log_end_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
        )

    def expired_offset(self, now_ms: int, stable_offset: int) -> int:
        """Where a tiered log would start after the retention of the whole log, by its files alone.

        It is for a log that is copied no more, once all older records, in the bucket, are gone.
        """
        count = self._count_deletable(RetentionLimits.whole_log(self.config), now_ms, stable_offset)
        is_all = count == len(self._segments)
        return self.log_end_offset if is_all else self._segments[count].base_offset

    def local_retention_offset(self, now_ms: int, stable_offset: int) -> int:
        """The local log start offset after the local retention of a tiered log (KIP-405).

        Only segments below ``tiered_end_offset`` go.  Write the offset into the checkpoint, then
        call ``delete_local_segments``.
        """
        count = self._count_deletable(
            RetentionLimits(*self.config.local_retention),
            now_ms,
            min(stable_offset, self.tiered_end_offset),
        )
        # The active segment is not in the bucket.
        first = self._segments[min(count, len(self._segments) - 1)].base_offset
        return max(first, self._local_log_start_offset)

    def can_delete_local(self, offset: int) -> bool:
        """Whether the files below ``offset`` may go now.

        They stay while segments are truncated or replaced, and if their records are not in the
        bucket as far as is known now.
        """
        if self.truncating or self.replacing:
            return False
        return offset <= min(self.tiered_end_offset, self._segments.active.base_offset)

    def delete_local_segments(self, offset: int, now_ms: int) -> int:
        """Raise the local log start to ``offset``, which the checkpoint tells already, and delete
        the segments below; the log start stays.

        Returns how many segments were deleted.  Returns 0, and changes nothing, unless
        ``can_delete_local`` allows it.  Raises StorageError.
        """
        self._require_writable()
        if not self.can_delete_local(offset):
            return 0
        self._local_log_start_offset = max(self._local_log_start_offset, offset)
        count = sum(segment.base_offset <= offset for segment in self._segments) - 1
        self._delete_first(count, now_ms)
        return count

    def _delete_first(self, count: int, now_ms: int) -> None:
        """Delete the first segments."""
        self._changed = self._changed or count > 0
        for _ in range(count):
            self._deleted.add(self._segments[0], now_ms + self.config.file_delete_delay_ms)
            self._segments.remove(self._segments[0])
            first = self._segments[0].base_offset
            self._flush.raise_to(first, self.log_end_offset)
            self._local_log_start_offset = max(self._local_log_start_offset, first)
        self._snapshots.keep_only(self._segments.base_offsets)

    def _follow_first_segment(self) -> None:
        """Move the local log start up to the first segment after a roll.

        An empty log rolls to a first batch that is too far for its segment.  Then the log begins at
        that batch, unless records below may be in the bucket.
        """
        first, local_start = self._segments[0].base_offset, self._local_log_start_offset
        if first <= local_start:
            return
        if not self.config.remote_storage_enable and self._log_start_offset == local_start:
            self._log_start_offset = first
        self._local_log_start_offset = first

    def purge_deleted(self, now_ms: int) -> int:
        """Remove files that were renamed ``file.delete.delay.ms`` ago; return how many.  Blocks."""
        return self._deleted.purge(now_ms)

    def _take_starts(self, starts: LogStarts) -> None:
        self._log_start_offset, self._local_log_start_offset = starts
