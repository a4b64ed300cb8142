"""The log of one partition: appends, reads and truncation, in the right file order.

Owns: the offsets [log start, log end), and the order in which the files of the log change.  Must
not know roles, high watermarks or clients.  Producer state belongs to the partition; the log keeps
the snapshots of that state and replays batches into it.

Not thread-safe: one thread makes all calls.  Only ``Log.open``, ``FlushJob.run``, ``purge_deleted``
and ``close`` may run in another thread.  Failures of the store are StorageError, refusals are
KafkaError, damage is CorruptLogError.
"""

import uuid
from collections.abc import Callable, Sequence
from functools import partial

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log.cleaned_segments import CleanedGroup
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.gap_marker import GapMarker
from sparklog.executors.log.log_damage import LogDamage
from sparklog.executors.log.log_loader import LoadedLog, load_log
from sparklog.executors.log.names import SNAPSHOT_SUFFIX, file_name
from sparklog.executors.log.presence import LogPresence
from sparklog.executors.log.recovery import RecoveryReport
from sparklog.executors.log.retained_log import RetainedLog
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment_list import AppendInfo, LogRead
from sparklog.executors.log.segment_swap import SegmentSwap
from sparklog.executors.log.snapshots import ProducerState
from sparklog.executors.log.steps import Steps, run_through
from sparklog.executors.log.time_search import TimeSearch
from sparklog.executors.log.truncation import LogTruncation, TieredStart
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.storage_backends.base import FileHalf
from sparklog.types import NO_LEADER_EPOCH, TopicPartition
from sparklog.wire.records.batch import LOG_OVERHEAD, BatchHeader, Buffer

__all__ = ["AppendInfo", "Log", "LogRead", "ProducerState", "RecoveryReport"]

#: Files that a log may have open while another thread closes or truncates it.
_OWN_FILES = 4


class Log(RetainedLog):
    """The log in one partition directory; ``open`` returns it."""

    def __init__(
        self,
        *,
        half: FileHalf,
        partition_dir: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        files: FileCache,
        producers: ProducerState,
        loaded: LoadedLog,
        now_ms: int,
    ) -> None:
        super().__init__(
            half=half,
            partition_dir=partition_dir,
            topic_partition=topic_partition,
            config=config,
            loaded=loaded,
            roller=Roller(half, files, partition_dir, loaded.segments, loaded.snapshots, producers),
        )
        self.topic_id = loaded.topic_id
        self.recovery: RecoveryReport = loaded.report
        self._files = files
        self.damage = LogDamage(loaded.segments, self._files_generation)
        self.times = TimeSearch(
            loaded.segments,
            loaded.epochs,
            ends=lambda: (self.local_log_start_offset, self._files_generation()),
            on_damage=self.damage.read_failed,
        )
        #: Whether offsets may be missing between batches, because this log or the log that it was
        #: copied from has been compacted at some time.
        self.gaps = GapMarker(half, partition_dir, is_set=loaded.compacted)
        self._truncation = LogTruncation(
            half,
            partition_dir,
            loaded.topic_id,
            loaded.epochs,
            self._roller,
            self._flush,
            loaded.clean_offset,
            self.gaps,
        )
        self._clean_offset = loaded.clean_offset
        self._swap = SegmentSwap(
            half,
            partition_dir,
            files,
            loaded.segments,
            self._deleted,
            self.gaps,
            generation=lambda: self.generation,
            may_change=lambda: self.offline is None and not self.truncating,
            fail=self.fail,
        )
        #: The recovery point at the opening; a crash may have torn the batches above it.
        self.recovered_from = loaded.recovery_point
        self.presence = LogPresence(half, partition_dir, files, loaded.segments, self._flush)
        self._flush.indexes_pending = len(loaded.segments) > 1 and loaded.report.indexes_rebuilt > 0
        if loaded.recovery_point < self.log_end_offset:
            self._flush.appended(now_ms)

    @classmethod
    def open(
        cls,
        half: FileHalf,
        partition_dir: str,
        *,
        topic_partition: TopicPartition,
        config: TopicConfig,
        files: FileCache,
        producers: ProducerState,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        local_log_start_offset: int = 0,
        topic_id: uuid.UUID | None = None,
        must_exist: bool = False,
    ) -> "Log":
        """Open the directory or create it, and recover what a crash may have torn.

        ``files`` is shared by the broker's logs and is not used before this call returns.  After a
        ``clean`` stop nothing needs recovery.  ``recovery_point`` and both log starts come from the
        broker's checkpoints, which must forget a deleted partition.  The directory must
        belong to ``topic_id``, if given.  ``must_exist``: the directory held a log before.  Raises
        CorruptLogError, LostLogError, KafkaError(INCONSISTENT_TOPIC_ID), StorageError.
        """
        loaded = load_log(
            half,
            partition_dir,
            config=config,
            files=files,
            producers=producers,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            local_log_start_offset=local_log_start_offset,
            topic_id=topic_id,
            must_exist=must_exist,
            now_ms=now_ms,
        )
        return cls(
            half=half,
            partition_dir=partition_dir,
            topic_partition=topic_partition,
            config=config,
            files=files,
            producers=producers,
            loaded=loaded,
            now_ms=now_ms,
        )

    # state

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self._segments.size

    @property
    def clean_offset(self) -> int | None:
        """The offset below which the log has been compacted; None if it never was."""
        return self._clean_offset.offset

    def snapshot_name(self, offset: int) -> str | None:
        """The name of the file with the producer state at this offset; None without such a file."""
        known = offset in self._snapshots.offsets
        return file_name(offset, SNAPSHOT_SUFFIX) if known else None

    def reconfigure(self, config: TopicConfig) -> None:
        """Use new settings; index sizes apply from the next segment on."""
        self.config = config

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # append

    def append(
        self,
        buffers: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        now_ms: int,
        aborted: AbortedTxn | None = None,
    ) -> AppendInfo:
        """Write stamped and checked batches at the log's end, after a roll if one is due.

        The joined ``buffers`` are the batches, and ``headers`` are the stamped headers.
        ``aborted`` is the transaction that a marker among them aborts.  A single batch may be
        larger than a segment, because a leader may have taken it under other settings.  Raises
        StorageError, KafkaError(RECORD_LIST_TOO_LARGE); then nothing has changed.
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
        self.gaps.set_before(headers, self.log_end_offset)
        self._changed = True
        self._files.appended[self.partition_dir] = None
        active = self._segments.active
        rolled = self._roll(self._roller.due_at(active, headers, size, self.config, now_ms), now_ms)
        if rolled:
            self._follow_first_segment()
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
        """Move the start of an empty log back to the base offset of the leader's first batch."""
        self._require_writable()
        assert self._segments.size == 0
        self._roll(offset, now_ms)
        self._flush.truncated(offset)
        self._log_start_offset = min(self._log_start_offset, offset)
        self._local_log_start_offset = min(self._local_log_start_offset, offset)

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and start a new segment at the log's end, unless it is empty."""
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
        skip_emptied: bool = False,
    ) -> LogRead:
        """Read whole batches of one segment, from the batch that holds ``offset`` on.

        The batches end below ``end_offset`` and have at most ``max_bytes``, but with ``min_one`` at
        least one batch is read.  ``with_aborted`` adds the aborted transactions with data in them.
        With ``skip_emptied``, batches without records are skipped if a later segment has records.
        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [local log start, log end], CorruptLogError
        where the log is damaged, and its subclass DamagedRangeError where the damaged offsets are
        known.
        """
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            raise self.out_of_range(offset)
        end_offset = min(end_offset, self.log_end_offset)
        try:
            found = self._segments.read(
                offset,
                max_bytes,
                end_offset,
                min_one=min_one,
                with_aborted=with_aborted,
                skip_emptied=skip_emptied,
            )
        except CorruptLogError as error:
            self.damage.read_failed(error)
            raise
        self.damage.read_succeeded(offset, found.size)
        return found

    def has_state(self, offset: int) -> bool:
        """Whether a segment begins at ``offset`` with known leader epochs and producer state.

        At the local log start neither can be read from the files of earlier records.
        """
        return (
            offset in self._segments.base_offsets
            and self.leader_epochs.epoch_at(offset - 1) != NO_LEADER_EPOCH
            and self.snapshot_name(offset) is not None
        )

    # replacing

    @property
    def generation(self) -> int:
        """A number that grows with every truncation.

        A cleaning that was planned at a smaller number is void, because its batches may be gone.
        """
        return self._flush.generation

    def begin_replacement(self) -> bool:
        """Announce a replacement of segments; False if none may begin now.

        Until ``end_replacement`` no flush starts and retention deletes nothing.  Appends go on.
        """
        if self.replacing or self.truncating or self.offline is not None:
            return False
        self.replacing = True
        return True

    def replace_segments(self, group: CleanedGroup, generation: int, now_ms: int) -> Steps[bool]:
        """Put a cleaned segment in the place of the segments that it was made from.

        Call ``begin_replacement`` first, and run the steps when the running flush has ended.
        ``generation`` is that of the log when the cleaning was planned.  Returns False, and removes
        the cleaned files, if the segments are not there any more, are damaged, or a truncation has
        begun.  Raises StorageError and CorruptLogError: without ``offline``, nothing has changed.
        """
        assert self.replacing, "begin_replacement was not called"
        assert not self._flush.in_flight, "a flush is running"
        replaced = yield from self._swap.run(group, generation, self.config, now_ms)
        self._changed = self._changed or replaced
        return replaced

    def advance_clean_offset(self, offset: int, generation: int) -> Steps[bool]:
        """Record durably that the log has been compacted below ``offset``.

        ``generation`` is that of the log when the cleaning was planned.  Returns False if a
        truncation has begun since.  Raises StorageError.
        """
        if generation != self.generation or self.truncating or self.offline is not None:
            return False
        yield partial(self._clean_offset.write, offset)
        return True

    def end_replacement(self) -> None:
        """End a replacement, whether it was made or not; flushes may start again."""
        self.replacing = False

    # truncating

    @property
    def log_start_to_note(self) -> int:
        """The log start for the checkpoint.

        If a tiered log is to start later, with new files, the checkpoint has that start before the
        old files go.  Otherwise the next start could take the records between the old log start and
        the new files for records in the bucket.
        """
        return max(self._log_start_offset, self._truncation.next_log_start)

    def begin_truncation(
        self, offset: int, *, fully: bool = False, log_starts_there: bool = False
    ) -> None:
        """Begin a truncation to ``offset``.  Write the broker's checkpoint before ``truncate_to``.

        With ``fully``, all files of the log are to be dropped.  With ``log_starts_there``, the
        whole log starts at ``offset`` then, so that nothing in the bucket belongs to it.

        The recovery point and the log start are lowered here.  Otherwise the next start would take
        a recovery point above the log's end for a loss, and records below an old log start for
        deleted.  ``tiered_end_offset`` is lowered too: the records that follow are not in the
        bucket.  Until ``end_truncation`` nothing else writes to this log, and the truncation may
        run in another thread after running flushes have ended.
        """
        self._require_writable()
        self.truncating = True
        self.tiered_end_offset = min(self.tiered_end_offset, offset)
        fully = fully or not self._keeps_files(offset)
        starts = self._log_start_offset, self._local_log_start_offset
        is_tiered = self.config.remote_storage_enable or starts[0] < starts[1]
        next_start = offset if log_starts_there and is_tiered else 0
        self._take_starts(
            self._truncation.begin(offset, starts, fully=fully, next_log_start=next_start)
        )

    def detach(self) -> FileCache:
        """Use a separate file cache while another thread works on the log.  Returns that cache."""
        own_files = FileCache(_OWN_FILES)
        self._segments.use(own_files)
        return own_files

    def end_truncation(self) -> None:
        """End the truncation, whether it was made or not, and undo ``detach``."""
        self.truncating = False
        if self.offline is None:
            starts = self._log_start_offset, self._local_log_start_offset
            self._take_starts(self._truncation.end(starts))
        self._segments.use(self._files)

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop every batch that ends at or above ``offset``; False without such a batch.

        A tiered log that ends at its local log start then keeps the state there, see ``has_state``.
        The caller writes the lowered recovery point first.  Blocks.  After a failure the log is
        offline.
        """
        self._require_writable()
        if offset >= self.log_end_offset:
            return False
        if not self._keeps_files(offset):
            log_start_offset = min(self._log_start_offset, offset)
            self.truncate_fully_and_start_at(offset, now_ms, log_start_offset)
            return True
        self._truncate(partial(self._truncation.truncate_to, offset), now_ms)
        self._flush.truncated(self.log_end_offset)
        # A start may lie inside a dropped batch.
        end = self.log_end_offset
        self._take_starts(
            (min(self._log_start_offset, end), min(self._local_log_start_offset, end))
        )
        return True

    def truncate_fully_and_start_at(
        self, offset: int, now_ms: int, log_start_offset: int | None = None
    ) -> None:
        """Drop everything; the local part starts and ends at ``offset``.  See ``truncate_to``.

        ``log_start_offset`` is where the whole log starts, if that is earlier: in the bucket.
        """
        self._require_writable()
        self._truncate(partial(self._truncation.truncate_fully_and_start_at, offset), now_ms)
        self._started_at(offset, offset if log_start_offset is None else log_start_offset)

    def start_in_tier(self, start: TieredStart, now_ms: int) -> None:
        """Drop everything; the local part starts and ends at an offset up to which the bucket has
        the records and the state (KIP-405).

        After a crash in the middle the log starts and ends at its log start.  Blocks.  Raises
        StorageError, also for a producer snapshot that is none; then the log is offline.
        """
        self._require_writable()
        self._truncate(partial(self._truncation.start_in_tier, start), now_ms)
        self._started_at(start.offset, start.log_start_offset)

    # end

    def close(self, now_ms: int, *, clean: bool = True) -> None:
        """Close all files; the log cannot be used afterwards.

        With ``clean``, flush, write the producer snapshot and trim the indexes first.  After that,
        without an error, the log may be opened as clean.  Blocks.  Raises StorageError.
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
        assert self._log_start_offset <= self._local_log_start_offset <= self.log_end_offset
        assert self._segments[0].base_offset <= self._local_log_start_offset
        assert self.recovery_point <= self.log_end_offset
        run_through(self.statistics.ensure_all_time_indexes())
        self._segments.check_invariants()
        self.leader_epochs.check_invariants()

    def _keeps_files(self, offset: int) -> bool:
        """Whether a truncation to ``offset`` leaves files, and if only the empty first one.

        A tiered log does not end at its local log start without the state of the bucket's part.
        """
        if offset != self._local_log_start_offset:
            return offset > self._local_log_start_offset
        return self._log_start_offset < offset and offset in self._segments.base_offsets

    def _started_at(self, offset: int, log_start_offset: int) -> None:
        self._take_starts((log_start_offset, offset))
        self._flush.truncated(offset)
        self._flush.raise_to(offset, offset)

    def _files_generation(self) -> int:
        """A number that changes when the paths of segments may lead to other files."""
        return self._flush.generation + self._segments.replacements

    def _truncate(self, truncate: Callable[[TopicConfig, int], None], now_ms: int) -> None:
        self._changed = True
        try:
            truncate(self.config, now_ms)
        except StorageError as error:
            self.offline = error
            raise
