"""The flushes of a log: when a flush is due, and the job that does it.

Owns: the recovery point, the policies ``flush.messages`` and ``flush.ms``, and the job that a
worker thread runs.  Must not know clocks or threads.  One flush runs at a time: appends during a
flush wait for the next flush, which covers all of them (group commit).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.config import TopicConfig
from sparklog.errors import LostLogError, StorageError
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.names import EPOCH_CHECKPOINT
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList
from sparklog.executors.log.snapshots import SnapshotFiles
from sparklog.storage_backends.base import FileHalf, MissingPathError, shrunk_error
from sparklog.types import MAX_INT64, NO_OFFSET

#: The value of ``flush.messages`` and ``flush.ms`` that leaves durability to replication.
NEVER: Final = MAX_INT64


class PostponedFlushError(StorageError):
    """A full disk has no room for the leader epochs.

    Nothing is unknown about the log, but its recovery point must not advance without its epochs.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """The files to flush so that the log is durable up to the offset ``target``."""

    half: FileHalf
    partition_dir: str
    target: int
    started_ms: int
    #: The number of truncations before the job; after another one the job proves nothing.
    generation: int
    paths: tuple[str, ...]
    epochs: bytes | None
    flush_names: bool
    #: The segments whose indexes are among the paths.
    sealed: tuple[Segment, ...]
    #: The smallest sizes of the log files in bytes, by path.
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: Paths without a file when the job ran.  Retention may have deleted the files meanwhile;
    #: the log knows.
    missing: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Flush the files.  Blocks; uses nothing but the files, so any thread may call it.

        Raises StorageError, PostponedFlushError if the job must be made again, and ChangedFileError
        where a log file is shorter than it was.
        """
        for path in self.paths:
            try:
                handle = self.half.open(path)
            except MissingPathError:
                self.missing.append(path)
                continue
            try:
                if handle.size() < self.sizes.get(path, 0):
                    raise shrunk_error(handle.path, handle.size(), self.sizes[path])
                handle.flush()
            finally:
                handle.close()
        if self.epochs is not None:
            self._save_epochs(self.epochs)
        if self.flush_names:
            self.half.flush_folder(self.partition_dir)

    def _save_epochs(self, epochs: bytes) -> None:
        try:
            self.half.put(f"{self.partition_dir}/{EPOCH_CHECKPOINT}", epochs)
        except StorageError as error:
            if not error.is_full:
                raise
            raise PostponedFlushError(str(error)) from error


class FlushState:
    """The recovery point of a log, and since when it lags behind the log's end."""

    __slots__ = (
        "_before_truncation",
        "generation",
        "in_flight",
        "indexes_pending",
        "recovery_point",
        "unflushed_since_ms",
    )

    def __init__(self, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.unflushed_since_ms: int | None = None
        self.generation = 0
        #: The recovery point before the truncation that is under way.
        self._before_truncation = NO_OFFSET
        self.in_flight = False
        #: A segment was sealed since the last flush began.
        self.indexes_pending = False

    def appended(self, now_ms: int) -> None:
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def deadline_ms(self, config: TopicConfig) -> int | None:
        """When ``flush.ms`` asks for the next flush; None without a deadline."""
        if config.flush_ms == NEVER or self.unflushed_since_ms is None:
            return None
        return self.unflushed_since_ms + config.flush_ms

    def target(self, config: TopicConfig, log_end_offset: int, now_ms: int) -> int | None:
        """The log's end if a flush is due, otherwise None.

        Sealed segments are flushed under every policy, so that recovery never reads them again.
        """
        deadline_ms = self.deadline_ms(config)
        unflushed = log_end_offset - self.recovery_point
        due = unflushed > 0 and (
            unflushed >= config.flush_messages
            or (deadline_ms is not None and now_ms >= deadline_ms)
        )
        return log_end_offset if due or self.indexes_pending else None

    def finished(self, job: FlushJob, log_end_offset: int) -> None:
        self.in_flight = False
        if job.generation != self.generation:
            self.indexes_pending = True
            return
        for segment in job.sealed:
            segment.indexes.unflushed = False
        self.recovery_point = max(self.recovery_point, job.target)
        if self.recovery_point >= log_end_offset:
            self.unflushed_since_ms = None
        else:
            self.unflushed_since_ms = job.started_ms

    def postponed(self, job: FlushJob) -> None:
        self.in_flight = False
        self.indexes_pending = self.indexes_pending or bool(job.sealed)

    def loss(self, job: FlushJob, segments: SegmentList) -> LostLogError | None:
        """The error if a job missed a file that the log still needs."""
        if not job.missing or job.generation != self.generation:
            return None
        own = {segment.log_path for segment in segments}
        lost = [path for path in job.missing if path in own]
        return LostLogError(f"{lost[0]} is gone: it cannot be flushed") if lost else None

    def begin_truncation(self, offset: int) -> None:
        """A truncation begins: the log will end at ``offset`` or above.

        The results of running flushes do not count any more.
        """
        self.generation += 1
        self._before_truncation = self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)

    def abandon_truncation(self) -> bool:
        """Give up a truncation that has begun; False if it was made, or none has begun."""
        begun = self._before_truncation != NO_OFFSET
        self.recovery_point = max(self.recovery_point, self._before_truncation)
        self._before_truncation = NO_OFFSET
        return begun

    def truncated(self, log_end_offset: int) -> None:
        """The log was truncated: durable records below its new end stay durable."""
        self.generation += 1
        # In one step: other threads may read the recovery point and write it to the checkpoint.
        self.recovery_point = min(max(self.recovery_point, self._before_truncation), log_end_offset)
        self._before_truncation = NO_OFFSET
        if self.recovery_point >= log_end_offset:
            self.unflushed_since_ms = None

    def raise_to(self, log_start_offset: int, log_end_offset: int) -> None:
        """Advance the recovery point to the log start: deleted records need no flush."""
        self.recovery_point = max(self.recovery_point, log_start_offset)
        if self.recovery_point >= log_end_offset:
            self.unflushed_since_ms = None


def make_job(
    half: FileHalf,
    partition_dir: str,
    state: FlushState,
    segments: SegmentList,
    snapshots: SnapshotFiles,
    epochs: EpochCache,
    *,
    now_ms: int,
    flush_names: bool,
) -> FlushJob:
    """The job for everything that is not durable yet, up to the log's end.

    The active segment needs only its log file, because its indexes are rebuilt after a crash.  The
    indexes of a sealed segment are trusted once the recovery point is above the segment.
    """
    point = state.recovery_point
    state.indexes_pending = False
    sealed = [
        segment
        for segment in segments
        if segment.indexes.unflushed and segment is not segments.active
    ]
    sizes = {s.log_path: s.size for s in segments if s.next_offset > point}
    paths = list(sizes)
    for segment in sealed:
        paths += [segment.offset_index.path, segment.time_index.path]
    # The active one too while a log closes: after a clean stop nothing else tells its contents.
    paths += [s.txn_index.path for s in segments if s.indexes.unflushed and s.txn_index.entries]
    paths += [snapshots.path(offset) for offset in snapshots.offsets if offset >= point]
    return FlushJob(
        half=half,
        partition_dir=partition_dir,
        target=segments.end_offset,
        started_ms=now_ms,
        generation=state.generation,
        paths=tuple(paths),
        epochs=epochs.encode() if epochs.dirty else None,
        flush_names=flush_names,
        sealed=tuple(sealed),
        sizes=sizes,
    )


def save_epochs(half: FileHalf, partition_dir: str, epochs: EpochCache) -> None:
    """Write the leader epoch checkpoint now, durably.  Raises StorageError."""
    half.put(f"{partition_dir}/{EPOCH_CHECKPOINT}", epochs.encode())
    epochs.dirty = False
