"""The log of one partition: what may be asked of it, and in which order its files change.

Owns: offsets [log start, log end), rolling, retention, truncation, and what of it is durable.  Must
not know roles, high watermarks or clients.  Producer state belongs to the partition; the log keeps
its snapshots and replays batches into it.

Not thread-safe: one thread calls everything.  Only ``Log.open``, ``FlushJob.run``,
``purge_deleted`` and ``close`` may run in another one.  The store's failures are StorageError,
refusals KafkaError, damage CorruptLogError.
"""

import uuid
from collections.abc import Callable, Sequence

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log.deleted_segments import DeletedSegments
from sparklog.executors.log.durable_log import DurableLog
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log_damage import LogDamage
from sparklog.executors.log.log_loader import LoadedLog, load_log
from sparklog.executors.log.presence import LogPresence
from sparklog.executors.log.recovery import RecoveryReport
from sparklog.executors.log.retention import count_deletable
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import AppendInfo, LogRead
from sparklog.executors.log.snapshots import ProducerState
from sparklog.executors.log.steps import run_through
from sparklog.executors.log.time_search import TimeSearch
from sparklog.executors.log.truncation import LogTruncation
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.storage_backends.base import FileHalf
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import LOG_OVERHEAD, BatchHeader, Buffer

__all__ = ["AppendInfo", "Log", "LogRead", "ProducerState", "RecoveryReport"]

#: Files that a log may have open while it is closed or cut in another thread.
_OWN_FILES = 4


class Log(DurableLog):
    """The log in one folder; ``open`` makes it."""

    def __init__(
        self,
        *,
        half: FileHalf,
        folder: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        files: FileCache,
        producers: ProducerState,
        loaded: LoadedLog,
        now_ms: int,
    ) -> None:
        super().__init__(
            half=half,
            folder=folder,
            topic_partition=topic_partition,
            config=config,
            loaded=loaded,
            roller=Roller(half, files, folder, loaded.segments, loaded.snapshots, producers),
        )
        self.topic_id = loaded.topic_id
        self.recovery: RecoveryReport = loaded.report
        self._files = files
        self.damage = LogDamage(loaded.segments, lambda: self._flush.generation)
        self.times = TimeSearch(
            loaded.segments,
            loaded.epochs,
            ends=lambda: (self._log_start_offset, self._flush.generation),
            on_damage=self.damage.met,
        )
        self._deleted = DeletedSegments(half)
        self._truncation = LogTruncation(half, folder, loaded.epochs, self._roller, self._flush)
        self._log_start_offset = loaded.log_start_offset
        #: What is behind it may be what a crash has made of writes.
        self.recovered_from = loaded.recovery_point
        self.presence = LogPresence(half, folder, files, loaded.segments, self._flush)
        self._flush.indexes_pending = len(loaded.segments) > 1 and loaded.report.indexes_rebuilt > 0
        if loaded.recovery_point < self.log_end_offset:
            self._flush.appended(now_ms)

    @classmethod
    def open(
        cls,
        half: FileHalf,
        folder: str,
        *,
        topic_partition: TopicPartition,
        config: TopicConfig,
        files: FileCache,
        producers: ProducerState,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: uuid.UUID | None = None,
        must_exist: bool = False,
    ) -> "Log":
        """Open the folder or create it; read again what may be torn.

        ``clean``: the broker stopped cleanly, nothing needs reading.  ``recovery_point`` and
        ``log_start_offset`` come from the broker's checkpoints, and must be forgotten there when a
        partition is deleted.  With ``topic_id`` the folder must belong to that topic.  ``files`` is
        shared by the broker's logs and not touched here.  ``must_exist``: this folder held a log
        before.  Raises CorruptLogError, LostLogError, KafkaError(INCONSISTENT_TOPIC_ID),
        StorageError.
        """
        loaded = load_log(
            half,
            folder,
            config=config,
            files=files,
            producers=producers,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            must_exist=must_exist,
            now_ms=now_ms,
        )
        return cls(
            half=half,
            folder=folder,
            topic_partition=topic_partition,
            config=config,
            files=files,
            producers=producers,
            loaded=loaded,
            now_ms=now_ms,
        )

    # state

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self._segments.size

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one is active."""
        return tuple(self._segments)

    def reconfigure(self, config: TopicConfig) -> None:
        """Use these settings; index sizes count from the next segment on."""
        self.config = config

    def assign_leader_epoch(self, epoch: int) -> None:
        """A leader epoch begins at the log's end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # append

    def append(
        self,
        buffers: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        now_ms: int,
        aborted: AbortedTxn | None = None,
    ) -> AppendInfo:
        """Write batches that are stamped and checked; ``headers`` are theirs, as stamped.

        ``buffers`` joined are the batches, in order, from the log's end on; ``aborted`` is what the
        marker among them aborts.  Starts a new segment first when a rule says so.  A failure
        changes nothing.  Raises StorageError, KafkaError(RECORD_LIST_TOO_LARGE).  One batch may be
        larger than a segment: that of a leader which took it under other settings.
        """
        self._require_writable()
        size = sum(map(len, buffers))
        lengths = sum([header.batch_length for header in headers])
        assert size == lengths + len(headers) * LOG_OVERHEAD, "headers do not fit their batches"
        assert headers[0].base_offset >= self.log_end_offset, "offsets must not go back"
        if size > self.config.segment_bytes and len(headers) > 1:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes at once are more than segment.bytes={self.config.segment_bytes}",
            )
        self._changed = True
        self._files.appended[self.folder] = None
        active = self._segments.active
        rolled = self._roll(self._roller.due_at(active, headers, size, self.config, now_ms), now_ms)
        active = self._segments.active
        if aborted is None:
            position = active.append(buffers, headers, now_ms)
        else:
            self._roller.names_changed = True  # its index entry may be the first of a new file
            position = self._segments.append_marker(buffers, headers, now_ms, aborted)
        if headers[-1].partition_leader_epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign_all(headers)
        self._flush.appended(now_ms)
        first, last = headers[0].base_offset, headers[-1].last_offset
        return AppendInfo(first, last, active.base_offset, position, size, rolled)

    def begin_at(self, offset: int, now_ms: int) -> None:
        """Let an empty log begin earlier: its leader's first batch begins below its log start."""
        self._require_writable()
        assert self._segments.size == 0
        self._roll(offset, now_ms)
        self._flush.cut(offset)
        self._log_start_offset = min(self._log_start_offset, offset)

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and start a new one at the log's end; nothing if it is empty."""
        self._require_writable()
        self._roll(self.log_end_offset, now_ms)

    # read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        with_aborted: bool = False,
    ) -> LogRead:
        """Whole batches of one segment, from the one that holds ``offset`` on.

        None that ends at or above ``end_offset``; at most ``max_bytes``, but at least one batch
        when ``min_one``.  ``with_aborted``: and the aborted transactions that have data there.
        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [log start, log end], CorruptLogError where
        the log is damaged, and of that DamagedRangeError where it is known which offsets are.
        """
        if not self._log_start_offset <= offset <= self.log_end_offset:
            raise self.out_of_range(offset)
        end_offset = min(end_offset, self.log_end_offset)
        try:
            found = self._segments.read(offset, max_bytes, end_offset, min_one, with_aborted)
        except CorruptLogError as error:
            self.damage.met(error)
            raise
        self.damage.was_read(offset, found.size)
        return found

    def out_of_range(self, offset: int) -> KafkaError:
        """The refusal to read there."""
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is outside "
            f"[{self._log_start_offset}, {self.log_end_offset}]",
        )

    # deleting

    def advance_log_start(self, offset: int) -> bool:
        """Hide what is below ``offset`` (DeleteRecords); False when it is hidden already.

        ``delete_old`` frees the space later; the caller keeps the checkpoint.  Raises
        KafkaError(OFFSET_OUT_OF_RANGE) beyond the log's end.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset <= self._log_start_offset:
            return False
        self._changed = True
        self._log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset, self.log_end_offset)
        return True

    def delete_old(self, now_ms: int, stable_offset: int) -> int:
        """Retention by time, size and log start, below ``stable_offset`` (the high watermark).

        Returns how many segments went.  Their files are renamed; ``purge_deleted`` removes them.
        """
        self._require_writable()
        if self.truncating:
            return 0
        count = count_deletable(
            self.segments,
            config=self.config,
            log_start_offset=self._log_start_offset,
            log_end_offset=self.log_end_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
        )
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        self._changed = self._changed or count > 0
        for _ in range(count):
            self._deleted.add(self._segments[0], now_ms + self.config.file_delete_delay_ms)
            self._segments.remove(self._segments[0])
            first = self._segments[0].base_offset
            self._flush.raise_to(first, self.log_end_offset)
            self._log_start_offset = max(self._log_start_offset, first)
        self.leader_epochs.truncate_from_start(self._log_start_offset, self.log_end_offset)
        self._snapshots.keep_only(self._segments.base_offsets)
        return count

    def purge_deleted(self, now_ms: int) -> int:
        """Remove the files that were renamed ``file.delete.delay.ms`` ago; how many.  Blocks."""
        return self._deleted.purge(now_ms)

    # truncating

    def begin_truncation(self, offset: int, *, start_over: bool = False) -> None:
        """The log is about to be cut at ``offset``: first write down its recovery point and start.

        They are lowered here, because a recovery point on the disk above the log's end would be
        taken for loss, and what is below a log start that was found there for deleted.  Until
        ``end_truncation`` nothing else writes to this log, and the cut may run in another thread
        once flushes that are under way have ended.
        """
        self._require_writable()
        self.truncating = True
        self._log_start_offset = self._truncation.announce(
            offset, self._log_start_offset, start_over=start_over
        )

    def detach(self) -> FileCache:
        """Use files of its own, which it returns, for what runs in another thread."""
        own_files = FileCache(_OWN_FILES)
        self._segments.use(own_files)
        return own_files

    def end_truncation(self) -> None:
        """It was cut, or is not to be after all; undoes ``detach``."""
        self.truncating = False
        if self.offline is None:
            self._log_start_offset = self._truncation.conclude(self._log_start_offset)
        self._segments.use(self._files)

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop every batch that ends at or above ``offset``; False when there is none.

        The caller first lowers the recovery point that it keeps for this log.  Blocks.  After a
        failure the log is offline.
        """
        self._require_writable()
        if offset >= self.log_end_offset:
            return False
        if self._truncation.drops_everything(offset, self._log_start_offset):
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self._truncate(self._truncation.truncate_to, offset, now_ms)
        self._flush.cut(self.log_end_offset)
        # The log start may lie inside the batch that went.
        self._log_start_offset = min(self._log_start_offset, self.log_end_offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the log starts and ends at ``offset``.  See ``truncate_to``."""
        self._require_writable()
        self._truncate(self._truncation.start_over, offset, now_ms)
        self._log_start_offset = offset
        self._flush.cut(offset)
        self._flush.raise_to(offset, offset)

    # end

    def close(self, now_ms: int, *, clean: bool = True) -> None:
        """Let go of all files; nothing may be asked of the log afterwards.

        ``clean``: flush, write the producer snapshot, trim the indexes; a log that was closed so,
        without an error, may be opened as clean.  Blocks.  Raises StorageError.
        """
        own_files = self.detach()
        try:
            if clean:
                self._require_writable()
                self._leave_clean(now_ms)
        finally:
            own_files.close(for_good=True)

    def check_invariants(self) -> None:
        """Reads every batch; for tests."""
        assert self._log_start_offset <= self.log_end_offset
        assert self.recovery_point <= self.log_end_offset
        run_through(self.statistics.know_all())
        self._segments.check_invariants()
        self.leader_epochs.check_invariants()

    def _truncate(
        self, truncate: Callable[[int, TopicConfig, int], None], offset: int, now_ms: int
    ) -> None:
        self._changed = True
        try:
            truncate(offset, self.config, now_ms)
        except StorageError as error:
            self.offline = error
            raise

    def _roll(self, base_offset: int | None, now_ms: int) -> bool:
        """Start a new segment there; False when there is no need."""
        if base_offset is None or not self._roller.roll(base_offset, self.config, now_ms):
            return False
        self._changed = self._flush.indexes_pending = True
        return True
