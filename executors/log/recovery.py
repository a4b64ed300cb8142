"""Opening a partition's folder: what is there, what of it can be trusted, what must be read again.

Owns: the order of recovery, the check of every batch behind the recovery point,
the cut of a torn tail, and the rebuilding of indexes and epochs.  Must not know producer state or
roles.

What was flushed is never cut.  Damage below the recovery point is noted where the segment ends is
known, at the begin of the next one, and a CorruptLogError in the last segment.  Behind a clean stop
everything was flushed.
"""

import logging
from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, DecodeError
from sparklog.executors.log.checkpoint import decode_epochs
from sparklog.executors.log.damaged_segments import keep_damaged
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.epoch_order import EpochOrder
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.index_builder import IndexBuilder
from sparklog.executors.log.names import (
    DELETED_SUFFIX,
    EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    NEW_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    offsets_with,
    parse_file_name,
)
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.scan import scan_batches
from sparklog.executors.log.segment import IndexDamageError, Segment
from sparklog.executors.log.segment_checks import indexes_fit
from sparklog.executors.log.segment_list import SegmentList, restore_producers
from sparklog.executors.log.snapshots import ProducerState, SnapshotFiles
from sparklog.executors.log.time_index import TimeIndex
from sparklog.storage_backends.base import FileHalf
from sparklog.types import MAX_INT32, MAX_INT64
from sparklog.wire.records.batch import BatchHeader

logger = logging.getLogger(__name__)

#: Files that are open while a log is loaded; they are closed before it is used.
_OPEN_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening had to do; all zero after a clean stop."""

    segments_recovered: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    indexes_rebuilt: int = 0
    batches_replayed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """An opened folder: segments, epochs, snapshots, offsets, and what it took."""

    segments: SegmentList
    epochs: EpochCache
    snapshots: SnapshotFiles
    log_start_offset: int
    recovery_point: int
    report: RecoveryReport


def load_log(
    half: FileHalf,
    folder: str,
    *,
    config: TopicConfig,
    files: FileCache,
    producers: ProducerState,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> LoadedLog:
    """Open the folder, which exists.  ``files`` is not used before this returns."""
    own_files = FileCache(_OPEN_FILES)
    names = half.list(folder)
    loader = _Loader(
        half=half,
        folder=folder,
        config=config,
        files=own_files,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        snapshots=SnapshotFiles(half, folder, offsets_with(names, SNAPSHOT_SUFFIX)),
    )
    try:
        loader.load(names)
        segments = SegmentList(loader.segments)
        replayed = restore_producers(producers, loader.snapshots, segments, now_ms)
        for segment in segments:
            segment.attach(files)
    finally:
        own_files.close()
    return LoadedLog(
        segments=segments,
        epochs=loader.epochs,
        snapshots=loader.snapshots,
        log_start_offset=loader.log_start_offset,
        recovery_point=loader.recovery_point,
        report=replace(loader.report, batches_replayed=replayed),
    )


@dataclass(slots=True, kw_only=True)
class _Loader:
    half: FileHalf
    folder: str
    config: TopicConfig
    files: FileCache
    clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    snapshots: SnapshotFiles
    segments: list[Segment] = field(default_factory=list)
    epochs: EpochCache = field(default_factory=EpochCache)
    report: RecoveryReport = field(default_factory=RecoveryReport)
    #: Segments that were read whole, by base offset: whether control batches are in them.
    with_markers: dict[int, bool] = field(default_factory=dict)

    def load(self, found: list[str]) -> None:
        """Fill in the fields above, and set both offsets to what they are from now on."""
        names = self._sweep(found)
        self.segments = [self._segment(base) for base in offsets_with(names, LOG_SUFFIX)]
        if not self.segments:
            self._start_empty(names)
            return
        self._drop_hidden()
        epochs_known = self._load_epochs(names)
        self._measure(set(names))
        if self.clean:
            self._load_active(set(names))
        else:
            self._recover()
        if not epochs_known:
            self._learn_epochs()
        self._settle()
        self._load_txn_indexes(set(names))

    def _sweep(self, names: list[str]) -> list[str]:
        """Finish deletions, and drop what belongs to no segment."""
        bases = set(offsets_with(names, LOG_SUFFIX))
        kept: list[str] = []
        for name in names:
            parsed = parse_file_name(name)
            orphan = parsed is not None and parsed[1] in SEGMENT_SUFFIXES and parsed[0] not in bases
            if name.endswith((DELETED_SUFFIX, NEW_SUFFIX)) or orphan:
                self.half.delete(f"{self.folder}/{name}")
            else:
                kept.append(name)
        return kept

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self.half, self.files, self.folder, base_offset, self.config, self.now_ms)

    def _drop_hidden(self) -> None:
        """Segments below the log start.

        A crash may have brought them back after they were deleted, and deletion moves the recovery
        point past what was never flushed.
        """
        segments = self.segments
        while len(segments) > 1 and segments[1].base_offset <= self.log_start_offset:
            segments[0].remove()
            del segments[0]

    def _start_empty(self, names: list[str]) -> None:
        # A folder that is new holds at most the id of its topic.
        lost = set(names) - {PARTITION_METADATA}
        if lost and self.recovery_point > self.log_start_offset:
            raise CorruptLogError(
                self.folder, 0, f"no segment is left of a log flushed to {self.recovery_point}"
            )
        self._start_at(self.log_start_offset)

    def _start_at(self, offset: int) -> None:
        former, self.segments = self.segments, [self._segment(offset)]
        self.segments[0].create(self.config)
        # The new one first: a log that has been opened once and has no segment is lost.  A crash
        # leaves both, and the former ones are below the log start.
        self.half.flush_folder(self.folder)
        for segment in reversed(former):
            segment.remove()
        self.snapshots.delete_all()
        self.half.flush_folder(self.folder)
        self.epochs.truncate_from_end(offset)
        self.epochs.truncate_from_start(offset, offset)
        self.log_start_offset = self.recovery_point = offset

    # epochs

    def _load_epochs(self, names: list[str]) -> bool:
        if EPOCH_CHECKPOINT not in names:
            return False
        try:
            entries = decode_epochs(self.half.read(f"{self.folder}/{EPOCH_CHECKPOINT}"))
        except DecodeError:
            return False
        self.epochs = EpochCache(entries)
        return True

    def _learn_epochs(self) -> None:
        self.epochs.clear()
        for segment in self.segments:
            for header, _ in segment.batches_from(segment.base_offset):
                self._note_epoch(header)

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        else:
            self.epochs.correct(header.partition_leader_epoch, header.base_offset)

    # trusted segments

    def _measure(self, present: set[str]) -> None:
        """Sizes of all segments, and the indexes of those that need no recovery."""
        segments, untrusted = self.segments, self._first_untrusted()
        for index, segment in enumerate(segments):
            segment.size = self.half.size(segment.log_path)
            if index + 1 == len(segments):
                break
            following = segments[index + 1]
            if index < untrusted:
                self._load_trusted(segment, present, following.base_offset)
                self._require_whole(segment, following)
            else:
                segment.load_sealed(segment.size, following.base_offset, 0, 0)

    def _load_active(self, present: set[str]) -> None:
        """After a clean stop; the files are those that it left, or they are read again."""
        segment = self.segments[-1]
        files = segment.files_at_rest()
        stats = files.check() if _there(files.stats_path, present) else None
        if stats is not None:
            segment.confirm(stats)
            with suppress(IndexDamageError):  # then it is the log: reading it all tells where
                segment.load_tail()
                return
        if segment.size == 0:
            self._empty_indexes(segment, present)
        else:
            self._rebuild_trusted(segment)

    def _load_trusted(self, segment: Segment, present: set[str], next_offset: int) -> None:
        """Take over a sealed segment; no more of its log is read than the end.

        Its ``.stats`` tells where it ends and what its indexes hold, whose bytes are checked when
        they are first used.  Without it indexes are believed whose ends can be true.
        """
        files = segment.files_at_rest()
        indexes = (segment.offset_index, segment.time_index)
        sizes = [self._size(index.path, present) for index in indexes]
        stats = files.read_header() if _there(files.stats_path, present) else None
        if stats is not None and sizes == [
            stats.offset_index.entries * OffsetIndex.ENTRY.size,
            stats.time_index.entries * TimeIndex.ENTRY.size,
        ]:
            segment.load_measured(stats)
            return
        entries = [
            size // index.ENTRY.size
            for size, index in zip(sizes, indexes, strict=True)
            if size is not None and size % index.ENTRY.size == 0
        ]
        try:
            if len(entries) == len(indexes):
                segment.load_sealed(segment.size, next_offset, *entries)
                if indexes_fit(segment):
                    segment.load_tail()
                    return
        except (IndexDamageError, CorruptLogError):
            pass  # whichever it is, reading the whole segment tells
        self._rebuild_trusted(segment, next_offset)

    def _empty_indexes(self, segment: Segment, present: set[str]) -> None:
        paths = [segment.offset_index.path, segment.time_index.path]
        if [self._size(path, present) for path in paths] != [0, 0]:
            segment.indexes.replace(
                IndexBuilder(segment.base_offset, segment.indexes.interval_bytes)
            )

    def _size(self, path: str, present: set[str]) -> int | None:
        return self.half.size(path) if _there(path, present) else None

    def _rebuild_trusted(self, segment: Segment, flushed_end: int | None = None) -> None:
        logger.warning(
            "%s and %s are missing or do not fit their log: they are made anew",
            segment.offset_index.path,
            segment.time_index.path,
        )
        self._rebuild(segment, check_end=MAX_INT64, flushed_end=flushed_end)
        # Nobody will read this segment again to see whether the new indexes are whole.
        for path in segment.paths[1:]:
            self.half.flush(path)

    def _load_txn_indexes(self, present: set[str]) -> None:
        """Take over those of trusted segments; the others are made anew from the markers."""
        for segment in self.segments:
            index, with_markers = segment.txn_index, self.with_markers.get(segment.base_offset)
            is_there = index.path.rpartition("/")[2] in present
            if with_markers:
                index.stale = True
            elif is_there and with_markers is None:
                index.load(segment.next_offset)
            elif is_there:
                index.replace([])

    def _require_whole(self, segment: Segment, following: Segment) -> None:
        if not self._follows(segment, following):
            raise CorruptLogError(
                segment.log_path,
                segment.size,
                f"the segment ends at offset {segment.next_offset} and the next one begins at "
                f"{following.base_offset}",
            )

    # recovery

    def _first_untrusted(self) -> int:
        """The first segment to be read again.

        The recovery point must lie behind a segment's end, not at it: at the end it may stand since
        before the segment was sealed, and its indexes were flushed only after that.
        """
        if self.clean:
            return len(self.segments)
        ends = [segment.base_offset for segment in self.segments[1:]]
        return bisect_left(ends, self.recovery_point)

    @property
    def _promised_end(self) -> int:
        """Where the log must not end before; nothing was promised of what was deleted since.

        Retention moves the log start to the end and deletes files without a flush; a crash can
        bring some of them back.
        """
        return self.recovery_point if self.recovery_point > self.log_start_offset else 0

    @property
    def _gapless_from(self) -> int:
        """From where on offsets have no gaps: what nobody flushed, only appends have touched."""
        return MAX_INT64 if "compact" in self.config.cleanup_policy else self.recovery_point

    def _recover(self) -> None:
        """Read every segment from the one that holds the recovery point on."""
        segments, first, whole = self.segments, self._first_untrusted(), True
        order = EpochOrder(self.epochs, self.recovery_point)
        for index in range(first, len(segments)):
            if index > first and not self._follows(segments[index - 1], segments[index], whole):
                self._drop_from(index)
                break
            self._count(segments_recovered=1)
            whole = self._rebuild(
                segments[index],
                check_end=self._promised_end,
                gapless_from=self._gapless_from,
                order=order,
                flushed_end=self._flushed_end(index),
            )
            if order.torn_from is not None:
                self._cut(order.torn_from)
                break

    def _flushed_end(self, index: int) -> int | None:
        """Where a segment ends all of which was flushed; None of one that may be torn."""
        end = self.segments[index + 1].base_offset if index + 1 < len(self.segments) else MAX_INT64
        return end if end <= self._promised_end else None

    def _cut(self, offset: int) -> None:
        """End the log there, which is not below the recovery point."""
        segments = self.segments
        bases = [segment.base_offset for segment in segments]
        last = bisect_right(bases, offset) - 1
        self._drop_from(last + 1)
        size = segments[last].size
        segments[last].truncate_to(offset)
        self._count(bytes_truncated=size - segments[last].size)

    def _follows(self, before: Segment, segment: Segment, whole: bool = True) -> bool:
        """Whether nothing is lost between two segments.

        The tail of the earlier one may be gone without a trace, at the end of a batch, while the
        later one reached the disk.  Gaps are in order in a compacted log, and where offsets leapt
        further than a segment can reach.
        """
        gap = segment.base_offset - before.next_offset
        leapt = segment.base_offset - before.base_offset > MAX_INT32
        gaps = leapt or "compact" in self.config.cleanup_policy
        return gap == 0 or (gap > 0 and gaps and whole)

    def _rebuild(
        self,
        segment: Segment,
        *,
        check_end: int,
        gapless_from: int = MAX_INT64,
        order: EpochOrder | None = None,
        flushed_end: int | None = None,
    ) -> bool:
        """Check every batch, rebuild the indexes; whether the segment was whole.

        A damaged tail is cut off, unless it holds offsets below ``check_end``.  Where all of the
        segment was flushed, up to ``flushed_end``, it keeps its bytes, and what is damaged of them
        is noted.
        """
        builder = IndexBuilder(segment.base_offset, self.config.index_interval_bytes)
        self.with_markers[segment.base_offset] = False

        def visit(header: BatchHeader, position: int) -> None:
            if header.is_control:
                self.with_markers[segment.base_offset] = True
            builder.add(header.last_offset, position, header.size, header.max_timestamp)
            if order is None or order.add(header.partition_leader_epoch, header.base_offset):
                self._note_epoch(header)

        handle = self.half.open(segment.log_path)
        try:
            scan = scan_batches(handle, segment.base_offset, visit, gapless_from=gapless_from)
            self._count(bytes_scanned=handle.size())
            if scan.damage is not None:
                if flushed_end is not None:
                    keep_damaged(segment, handle, flushed_end, scan.damage)
                    self.files.drop(segment.log_path)
                    # Markers may lie in what is damaged: the index of them that is there is kept.
                    del self.with_markers[segment.base_offset]
                    self._count(indexes_rebuilt=1)
                    return True
                if scan.next_offset < check_end:
                    raise CorruptLogError(handle.path, scan.valid_size, scan.damage)
                self._count(bytes_truncated=handle.size() - scan.valid_size)
                handle.truncate(scan.valid_size)
                # Else the tail may come back after the recovery point has passed this segment.
                handle.flush()
        finally:
            handle.close()
        self.files.drop(segment.log_path)
        segment.size = scan.valid_size
        segment.next_offset = scan.next_offset
        segment.indexes.replace(builder)
        self._count(indexes_rebuilt=1)
        return scan.damage is None

    def _drop_from(self, index: int) -> None:
        """Segments behind a torn one: their records have lost what they followed."""
        segments = self.segments
        for segment in reversed(segments[index:]):
            self._count(bytes_truncated=segment.size)
            segment.remove()
        if index < len(segments):
            # Else they may come back in place of what is written from now on.
            self.half.flush_folder(self.folder)
        del segments[index:]

    def _settle(self) -> None:
        """The end is known: make everything else agree with it."""
        active = self.segments[-1]
        end = active.next_offset
        if end < self._promised_end:
            raise CorruptLogError(
                active.log_path,
                active.size,
                f"the log ends at offset {end} but was flushed up to {self.recovery_point}",
            )
        if self.log_start_offset > end:
            self._start_at(self.log_start_offset)
            return
        active.activate(self.config)
        if self.clean:
            self.recovery_point = end
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(self.log_start_offset, end)

    def _count(self, **more: int) -> None:
        known = {name: getattr(self.report, name) + value for name, value in more.items()}
        self.report = replace(self.report, **known)


def _there(path: str, present: set[str]) -> bool:
    return path.rpartition("/")[2] in present
