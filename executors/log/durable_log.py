"""The half of a log for durability: flushes, the clean stop, and the log's failure.

Owns: the order of a flush on the log's own thread, the start of a new segment, the files of a clean
stop, and the error of an offline log.  Must not know appends, reads or truncations.
"""

from collections.abc import Sequence

from sparklog.config import TopicConfig
from sparklog.errors import StorageError
from sparklog.executors.log.flush import FlushJob, FlushState, make_job, save_epochs
from sparklog.executors.log.log_loader import LoadedLog
from sparklog.executors.log.measured_segments import MeasuredSegments, write_closing_stats
from sparklog.executors.log.recovery import RecoveryReport
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment import Segment
from sparklog.storage_backends.base import FileHalf
from sparklog.types import TopicPartition


class DurableLog:
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
        self.topic_partition = topic_partition
        self.partition_dir = partition_dir
        self.config = config
        self.leader_epochs = loaded.epochs
        #: The error that took the log offline; None while it is online.
        self.offline: StorageError | None = None
        #: True between ``begin_truncation`` and ``end_truncation``.
        self.truncating = False
        #: True between ``begin_replacement`` and ``end_replacement``.
        self.replacing = False
        #: The store of the log's files, with the half of its operations that only files have.
        self._half = half
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._roller = roller
        self._flush = FlushState(loaded.recovery_point)
        self.statistics = MeasuredSegments(loaded.segments)
        #: Whether anything has changed since a clean stop, apart from the leader epochs.
        self._changed = not (loaded.clean and loaded.report == RecoveryReport())

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; the last segment is active."""
        return tuple(self._segments)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments.end_offset

    @property
    def recovery_point(self) -> int:
        """All records below this offset are durable."""
        return self._flush.recovery_point

    def fail(self, error: StorageError) -> None:
        """Take the log offline; the first error stays."""
        if self.offline is None:
            self.offline = error

    # flush: start on the owner's thread, run anywhere, finish on the owner's thread

    @property
    def flush_deadline_ms(self) -> int | None:
        """When ``flush.ms`` makes the next flush due."""
        return self._flush.deadline_ms(self.config)

    def flush_due(self, now_ms: int) -> bool:
        """Whether ``flush.messages``, ``flush.ms`` or a sealed segment ask for a flush."""
        return self._flush.target(self.config, self.log_end_offset, now_ms) is not None

    def start_flush(self, now_ms: int, *, force: bool = False) -> FlushJob | None:
        """The job that flushes up to the log's end.  ``run`` the job in any thread, then pass it to
        ``finish_flush``, ``postpone_flush`` or ``fail_flush``.

        Returns None without ``force`` if no flush is due, and also during another job, a truncation
        or a replacement of segments.
        """
        due = force or self.flush_due(now_ms)
        if not due or self._flush.in_flight or self.offline is not None:
            return None
        if self.truncating or self.replacing:
            return None
        self._flush.in_flight = True
        return self._job(now_ms)

    def finish_flush(self, job: FlushJob, now_ms: int) -> None:
        """Take a finished job: advance the recovery point, or go offline if a file of the log was
        missing."""
        lost = self._flush.loss(job, self._segments)
        if lost is not None:
            self.fail_flush(job, lost)
            return
        self._flush.finished(job, self.log_end_offset)
        if job.epochs is not None and job.epochs == self.leader_epochs.encode():
            self.leader_epochs.dirty = False

    def postpone_flush(self, job: FlushJob) -> None:
        """Take a job that raised PostponedFlushError: the next flush does everything again."""
        self._flush.postponed(job)
        self._roller.names_changed = self._roller.names_changed or job.flush_names

    def fail_flush(self, job: FlushJob, error: StorageError) -> None:
        """Take a failed job: the state of the disk is unknown, so the log goes offline."""
        self._flush.in_flight = False
        self.offline = error

    def flush(self, now_ms: int) -> None:
        """Flush now.  Blocks.  Raises StorageError, and then the log is offline."""
        self._require_writable()
        self._run(self._job(now_ms), now_ms)

    def _roll(self, base_offset: int | None, now_ms: int) -> bool:
        """Start a new segment at ``base_offset``; False if none is due there."""
        if base_offset is None or not self._roller.roll(base_offset, self.config, now_ms):
            return False
        self._changed = self._flush.indexes_pending = True
        return True

    def _require_writable(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self.topic_partition} is offline: {self.offline}")
        self._roller.remove_unwanted()

    def _leave_clean(self, now_ms: int) -> None:
        active = self._segments.active
        if not self._changed:
            active.indexes.trim()  # lookups have preallocated the files again
            if self.leader_epochs.dirty:
                save_epochs(self._half, self.partition_dir, self.leader_epochs)
            return
        self.statistics.measure_pending()
        active.seal()
        if self.log_end_offset > 0:  # a log that was never written to has no state
            self._snapshots.write(self.log_end_offset, self._roller.producers.to_snapshot())
        self._snapshots.keep_only(self._segments.base_offsets)
        self._run(self._job(now_ms), now_ms)
        write_closing_stats(active)

    def _run(self, job: FlushJob, now_ms: int) -> None:
        try:
            job.run()
        except StorageError as error:
            self.fail_flush(job, error)
            raise
        self.finish_flush(job, now_ms)
        if self.offline is not None:
            raise self.offline

    def _job(self, now_ms: int) -> FlushJob:
        flush_names, self._roller.names_changed = self._roller.names_changed, False
        return make_job(
            self._half,
            self.partition_dir,
            self._flush,
            self._segments,
            self._snapshots,
            self.leader_epochs,
            now_ms=now_ms,
            flush_names=flush_names,
        )
