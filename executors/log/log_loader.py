"""The loading of a log: the files of a partition directory become segments, epochs and snapshots.

Owns: the order of the loading, the removal of leftover files, and the agreement of all parts with
the log's end.  Must not know how segments are checked or recovered, producer state or roles.
"""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, DecodeError
from sparklog.executors.log.checkpoint import decode_epochs
from sparklog.executors.log.clean_offset import CleanOffset
from sparklog.executors.log.cleaned_segments import CLEANED_SUFFIX
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.full_truncation import (
    begin_full_truncation,
    drop_log,
    end_full_truncation,
)
from sparklog.executors.log.names import (
    CLEAN_OFFSET,
    COMPACTED_MARKER,
    DELETED_SUFFIX,
    EPOCH_CHECKPOINT,
    FULL_TRUNCATION,
    LOG_SUFFIX,
    NEW_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    offsets_with,
    parse_file_name,
)
from sparklog.executors.log.partition_metadata import claim_partition_dir
from sparklog.executors.log.presence import require_present
from sparklog.executors.log.recovery import LogRecovery, RecoveryReport
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList, restore_producers
from sparklog.executors.log.segment_swap import finish_swaps
from sparklog.executors.log.snapshots import ProducerState, SnapshotFiles
from sparklog.executors.log.trusted_segments import TrustedSegments
from sparklog.storage_backends.base import FileHalf
from sparklog.types import NO_LEADER_EPOCH

#: Files that are open while a log is loaded; they are closed before the log is used.
_OPEN_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A loaded log: segments, leader epochs, snapshots, offsets, and the work of the recovery."""

    segments: SegmentList
    epochs: EpochCache
    snapshots: SnapshotFiles
    log_start_offset: int
    local_log_start_offset: int
    recovery_point: int
    report: RecoveryReport
    topic_id: UUID | None
    clean: bool
    #: Whether the ``compacted`` file is there.
    compacted: bool
    clean_offset: CleanOffset


def load_log(
    half: FileHalf,
    partition_dir: str,
    *,
    config: TopicConfig,
    files: FileCache,
    producers: ProducerState,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    local_log_start_offset: int,
    topic_id: UUID | None,
    must_exist: bool,
    now_ms: int,
) -> LoadedLog:
    """See ``Log.open``.  ``files`` is not used before this returns."""
    if must_exist:
        require_present(half, partition_dir)
    half.make_folder(partition_dir)
    found_id = claim_partition_dir(half, partition_dir, topic_id)
    own_files = FileCache(_OPEN_FILES)
    names = half.list(partition_dir)
    loader = LogLoader(
        half=half,
        partition_dir=partition_dir,
        config=config,
        files=own_files,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        local_log_start_offset=max(log_start_offset, local_log_start_offset),
        tiered=config.remote_storage_enable or local_log_start_offset > log_start_offset,
        now_ms=now_ms,
        snapshots=SnapshotFiles(half, partition_dir, offsets_with(names, SNAPSHOT_SUFFIX)),
        producers=producers,
    )
    loader.compacted = COMPACTED_MARKER in names
    if not loader.compacted and config.compacts and offsets_with(names, LOG_SUFFIX):
        # A log that Kafka has compacted lacks the file, and the policy may change.
        half.put(f"{partition_dir}/{COMPACTED_MARKER}", b"")
        loader.compacted = True
    try:
        loader.load(names)
        segments = SegmentList(loader.segments)
        replayed = restore_producers(producers, loader.snapshots, segments, now_ms)
        clean_offset = CleanOffset(half, partition_dir)
        if CLEAN_OFFSET in names and not loader.dropped:
            clean_offset.load(segments.end_offset)
        for segment in segments:
            segment.attach(files)
    finally:
        own_files.close()
    return LoadedLog(
        segments=segments,
        epochs=loader.epochs,
        snapshots=loader.snapshots,
        log_start_offset=loader.log_start_offset,
        local_log_start_offset=loader.local_log_start_offset,
        recovery_point=loader.recovery_point,
        report=replace(loader.report, batches_replayed=replayed),
        topic_id=found_id,
        clean=clean,
        compacted=loader.compacted,
        clean_offset=clean_offset,
    )


@dataclass(slots=True, kw_only=True)
class LogLoader:
    """The state of one opening; ``load`` fills it in."""

    half: FileHalf
    partition_dir: str
    config: TopicConfig
    files: FileCache
    clean: bool
    recovery_point: int
    log_start_offset: int
    local_log_start_offset: int
    #: Records below the local log start may lie in the bucket, so the log start does not follow it.
    tiered: bool
    now_ms: int
    snapshots: SnapshotFiles
    producers: ProducerState
    #: Whether the log may have gaps (``gap_marker``).
    compacted: bool = False
    segments: list[Segment] = field(default_factory=list)
    epochs: EpochCache = field(default_factory=EpochCache)
    #: Whether the checkpoint of the leader epochs was read.
    epochs_known: bool = False
    #: Whether all files of the log were dropped.
    dropped: bool = False
    report: RecoveryReport = field(default_factory=RecoveryReport)

    def load(self, found: list[str]) -> None:
        """Load the files in ``found``; set the fields, among them both offsets as of now."""
        if FULL_TRUNCATION in found:
            self._finish_full_truncation(found)
            return
        names = self._sweep(finish_swaps(self.half, self.partition_dir, found))
        self.segments = [self._segment(base) for base in offsets_with(names, LOG_SUFFIX)]
        if not self.segments:
            self._start_empty(names)
            return
        self._drop_hidden()
        self.epochs_known = self._load_epochs(names)
        recovery = LogRecovery(
            half=self.half,
            partition_dir=self.partition_dir,
            config=self.config,
            files=self.files,
            segments=self.segments,
            epochs=self.epochs,
            recovery_point=self.recovery_point,
            local_log_start_offset=self.local_log_start_offset,
            compacted=self.compacted,
        )
        trusted = TrustedSegments(self.half, recovery, frozenset(names))
        first_untrusted = self._first_untrusted()
        trusted.load_sealed(self.segments, first_untrusted)
        if self.clean:
            trusted.load_active(self.segments[-1])
        else:
            recovery.recover(first_untrusted)
        if self.epochs_known:
            recovery.learn_first_epochs(self.log_start_offset)
        else:
            recovery.learn_epochs()
        self._align_with_end(recovery.promised_end)
        trusted.load_txn_indexes(self.segments)
        self.report = recovery.report

    def _sweep(self, names: list[str]) -> list[str]:
        """Finish deletions, undo unfinished cleanings, and delete files that belong to no segment;
        return the other names."""
        bases = set(offsets_with(names, LOG_SUFFIX))
        kept: list[str] = []
        for name in names:
            parsed = parse_file_name(name)
            orphan = parsed is not None and parsed[1] in SEGMENT_SUFFIXES and parsed[0] not in bases
            if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, NEW_SUFFIX)) or orphan:
                self.half.delete(f"{self.partition_dir}/{name}")
            else:
                kept.append(name)
        return kept

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self.half, self.files, self.partition_dir, base_offset, self.config, self.now_ms
        )

    def _drop_hidden(self) -> None:
        """Remove the segments below the local log start.

        A crash may have brought them back after they were deleted, and deletion moves the recovery
        point past what was never flushed.
        """
        segments = self.segments
        while len(segments) > 1 and segments[1].base_offset <= self.local_log_start_offset:
            segments[0].remove()
            del segments[0]

    def _finish_full_truncation(self, found: list[str]) -> None:
        start = drop_log(self.half, self.partition_dir, found)
        self.segments, self.epochs, self.dropped = [], EpochCache(), True
        self.snapshots.delete_all()
        self.log_start_offset = start
        self._start_at(start)
        end_full_truncation(self.half, self.partition_dir)

    def _start_empty(self, names: list[str]) -> None:
        # A new directory holds at most the id of its topic.
        lost = set(names) - {PARTITION_METADATA}
        if lost and self.recovery_point > self.local_log_start_offset:
            raise CorruptLogError(
                self.partition_dir,
                0,
                f"no segment is left of a log flushed to {self.recovery_point}",
            )
        if self.tiered:
            self.epochs_known = self._load_epochs(names)
        self._start_at_local_start()

    def _start_at_local_start(self) -> None:
        """Start without records, at the local log start.

        Without the state there, a tiered log starts at its log start: otherwise this replica could
        lead with the records in the bucket, but without their leader epochs and producers.  The
        leader sends it to the bucket for both.
        """
        offset = self.local_log_start_offset
        if self.log_start_offset == offset or self._has_state(offset):
            self._start_at(offset)
            return
        for segment in self.segments:
            segment.close()
        begin_full_truncation(self.half, self.partition_dir, self.log_start_offset)
        self._finish_full_truncation(self.half.list(self.partition_dir))

    def _has_state(self, offset: int) -> bool:
        """Whether leader epochs and producers are known of a log that was flushed to ``offset``.

        A local log start that the log never reached is above the recovery point.
        """
        if self.recovery_point < offset or not self.epochs_known:
            return False
        if self.epochs.epoch_at(offset - 1) == NO_LEADER_EPOCH:
            return False
        return self.snapshots.load_latest(self.producers, self.now_ms, at_most=offset) == offset

    def _start_at(self, offset: int) -> None:
        former, self.segments = self.segments, [self._segment(offset)]
        self.segments[0].create(self.config)
        # The new segment first: a log without a segment counts as lost.  After a crash there are
        # both, and the former segments are below the local log start.
        self.half.flush_folder(self.partition_dir)
        for segment in reversed(former):
            segment.remove()
        if self.log_start_offset < offset:
            self.snapshots.keep_between(offset, offset)
        else:
            self.snapshots.delete_all()
        self.half.flush_folder(self.partition_dir)
        self.epochs.truncate_from_end(offset)
        if not self.tiered:
            self.log_start_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_start(self.log_start_offset, offset)
        self.local_log_start_offset = self.recovery_point = offset

    def _load_epochs(self, names: list[str]) -> bool:
        if EPOCH_CHECKPOINT not in names:
            return False
        try:
            entries = decode_epochs(self.half.read(f"{self.partition_dir}/{EPOCH_CHECKPOINT}"))
        except DecodeError:
            return False
        self.epochs = EpochCache(entries)
        return True

    def _first_untrusted(self) -> int:
        """The first segment to be read again.

        A segment is trusted only if the recovery point lies behind its end.  A recovery point at
        the end may be older than the sealing of the segment, and its indexes were flushed after
        that.
        """
        if self.clean:
            return len(self.segments)
        ends = [segment.base_offset for segment in self.segments[1:]]
        return bisect_left(ends, self.recovery_point)

    def _align_with_end(self, promised_end: int) -> None:
        """Make log start, epochs, snapshots and producer state agree with the known log end."""
        active = self.segments[-1]
        end = active.next_offset
        if end < promised_end:
            raise CorruptLogError(
                active.log_path,
                active.size,
                f"the log ends at offset {end} but was flushed up to {self.recovery_point}",
            )
        if self.local_log_start_offset > end:
            self._start_at_local_start()
            return
        active.activate(self.config)
        if self.clean:
            self.recovery_point = end
        self.local_log_start_offset = max(self.local_log_start_offset, self.segments[0].base_offset)
        if not self.tiered:
            self.log_start_offset = self.local_log_start_offset
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(self.log_start_offset, end)
