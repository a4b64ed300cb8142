"""The swap of a cleaned segment for the segments that it replaces (``LogSegments`` in Kafka).

Owns: the order in which files are renamed, so that a crash at any point loses nothing, and what a
start finishes or undoes.  Must not know how segments are cleaned, or when.

The cleaner leaves ``.cleaned`` files, durably.  The steps of a swap:

1.  The ``compacted`` file is written, because from now on the log may have gaps.  Then
    ``.log.cleaned`` becomes ``.log.swap``, and the name is made durable.  Until then a crash undoes
    the cleaning: a start deletes ``.cleaned`` files.  From then on a crash finishes it.
2.  On the log's own thread, at once: the files of the replaced segments become ``.deleted``, the
    cleaned indexes get their ordinary names, and last of all ``.log.swap`` becomes ``.log``.  Reads
    that were given regions of the replaced files go on with these.
3.  The names are made durable, before anything else truncates the log.

A start that finds ``.log.swap`` finishes with this file alone.  The file holds the offsets [base
offset, next offset), and segments of a cleaned log meet, so it replaces exactly the segments whose
base offsets lie in that range.  All other files of these segments are deleted, and the indexes are
rebuilt from the batches.  As elsewhere in this package, a file system keeps the order of renames
and deletions in a directory.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.cleaned_segments import (
    CLEANED_SUFFIXES,
    CleanedGroup,
    CleanedSegment,
)
from sparklog.executors.log.deleted_segments import DeletedSegments
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.gap_marker import GapMarker
from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    STATS_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    offsets_with,
)
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList
from sparklog.executors.log.spans import iter_spans
from sparklog.executors.log.steps import Steps
from sparklog.executors.log.time_index import TimeIndex
from sparklog.executors.log.txn_index import ENTRY_BYTES
from sparklog.segment_files.index_entries import TimestampOffset
from sparklog.storage_backends.base import FileHalf

logger = logging.getLogger(__name__)


class SegmentSwap:
    """The swaps of one log, one after the other.

    ``generation`` returns the number of truncations.  ``may_change`` tells on the log's own thread
    whether the segments may be swapped now; ``fail`` takes the log offline.
    """

    __slots__ = (
        "_deleted",
        "_fail",
        "_files",
        "_gap_marker",
        "_generation",
        "_half",
        "_may_change",
        "_partition_dir",
        "_segments",
    )

    def __init__(
        self,
        half: FileHalf,
        partition_dir: str,
        files: FileCache,
        segments: SegmentList,
        deleted: DeletedSegments,
        gap_marker: GapMarker,
        *,
        generation: Callable[[], int],
        may_change: Callable[[], bool],
        fail: Callable[[StorageError], None],
    ) -> None:
        self._half = half
        self._partition_dir = partition_dir
        self._files = files
        self._segments = segments
        self._deleted = deleted
        self._gap_marker = gap_marker
        self._generation = generation
        self._may_change = may_change
        self._fail = fail

    def run(
        self, group: CleanedGroup, generation: int, config: TopicConfig, now_ms: int
    ) -> Steps[bool]:
        """See ``Log.replace_segments``."""
        cleaned = group.segment
        if self._replaced(group, generation) is None:
            yield partial(self._drop, cleaned)
            return False
        try:
            yield partial(self._begin, cleaned)
            replaced = self._replaced(group, generation)
            if replaced is None:
                yield partial(self._drop, cleaned)
                return False
        except (StorageError, CorruptLogError):
            yield from self._give_up(cleaned)
            raise
        try:
            self._switch(cleaned, replaced, config, now_ms)
            yield partial(self._half.flush_folder, self._partition_dir)
        except Exception as error:
            # The next start finishes the swap; until then names and segments may disagree.
            self._fail(error if isinstance(error, StorageError) else StorageError(repr(error)))
            raise
        return True

    def _replaced(self, group: CleanedGroup, generation: int) -> list[Segment] | None:
        """The segments to replace; None if they may not be replaced, or not any more."""
        segments = self._segments
        first = next((s for s in segments if s.base_offset == group.replaced[0]), None)
        if first is None or generation != self._generation() or not self._may_change():
            return None
        begin, count = segments.index(first), len(group.replaced)
        if begin + count >= len(segments):
            return None  # the active segment is never replaced
        found = [segments[index] for index in range(begin, begin + count)]
        if tuple(segment.base_offset for segment in found) != group.replaced:
            return None
        meets = found[-1].next_offset == group.segment.next_offset
        return found if meets and not any(segment.damaged for segment in found) else None

    # blocking parts

    def _begin(self, cleaned: CleanedSegment) -> None:
        """Mark the cleaned segment as complete, durably."""
        sizes = {
            LOG_SUFFIX: cleaned.size,
            INDEX_SUFFIX: cleaned.offset_entries * OffsetIndex.ENTRY.size,
            TIME_INDEX_SUFFIX: cleaned.time_entries * TimeIndex.ENTRY.size,
        }
        if cleaned.aborted_entries:
            sizes[TXN_INDEX_SUFFIX] = cleaned.aborted_entries * ENTRY_BYTES
        for suffix, size in sizes.items():
            path = cleaned.path(self._partition_dir, suffix)
            found = self._half.size(path)
            if found != size:
                raise CorruptLogError(path, found, f"a cleaned file of {size} bytes was announced")
        self._gap_marker.set()
        self._half.rename(cleaned.path(self._partition_dir, LOG_SUFFIX), self._swap_path(cleaned))
        self._half.flush_folder(self._partition_dir)

    def _drop(self, cleaned: CleanedSegment) -> None:
        """Remove the files of a cleaned segment that replaces nothing, durably."""
        self._half.delete(self._swap_path(cleaned))
        for suffix in CLEANED_SUFFIXES:
            self._half.delete(cleaned.path(self._partition_dir, suffix))
        self._half.flush_folder(self._partition_dir)

    def _give_up(self, cleaned: CleanedSegment) -> Steps[None]:
        try:
            yield partial(self._drop, cleaned)
        except StorageError as error:
            # A swap that stays would be finished by a later start, in a log that has moved on.
            self._fail(error)

    # the log's own thread

    def _switch(
        self,
        cleaned: CleanedSegment,
        replaced: Sequence[Segment],
        config: TopicConfig,
        now_ms: int,
    ) -> None:
        half, partition_dir = self._half, self._partition_dir
        base_offset, created_ms = cleaned.base_offset, replaced[0].created_ms
        segment = Segment(half, self._files, partition_dir, base_offset, config, created_ms)
        for former in replaced:
            self._deleted.add(former, now_ms + config.file_delete_delay_ms)
        half.delete(segment.path(STATS_SUFFIX))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            half.rename(cleaned.path(partition_dir, suffix), segment.path(suffix))
        if cleaned.aborted_entries:
            half.rename(cleaned.path(partition_dir, TXN_INDEX_SUFFIX), segment.txn_index.path)
        else:
            half.delete(segment.txn_index.path)
            half.delete(cleaned.path(partition_dir, TXN_INDEX_SUFFIX))
        half.rename(self._swap_path(cleaned), segment.log_path)
        segment.load_sealed(
            cleaned.size, cleaned.next_offset, cleaned.offset_entries, cleaned.time_entries
        )
        largest = TimestampOffset(cleaned.largest_timestamp, cleaned.largest_offset)
        segment.indexes.trust_largest(largest)
        segment.indexes.times_known = True
        segment.txn_index.adopt(cleaned.aborted_entries)
        segment.last_append_ms = max(former.last_append_ms for former in replaced)
        segment.stats_pending = True
        self._segments.replace(replaced, segment)

    def _swap_path(self, cleaned: CleanedSegment) -> str:
        return f"{self._partition_dir}/{file_name(cleaned.base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}"


def finish_swaps(half: FileHalf, partition_dir: str, names: list[str]) -> list[str]:
    """Finish the swaps that a crash has interrupted; return the names of the files afterwards.

    A swap that is damaged is undone if its first replaced segment is still there.  Raises
    CorruptLogError, StorageError.
    """
    swaps = offsets_with(names, LOG_SUFFIX + SWAP_SUFFIX)
    if not swaps:
        return names
    bases = offsets_with(names, LOG_SUFFIX)
    for base_offset in swaps:
        path = f"{partition_dir}/{file_name(base_offset, LOG_SUFFIX)}"
        swap = path + SWAP_SUFFIX
        try:
            next_offset = _next_offset(half, swap)
        except CorruptLogError as error:
            if base_offset not in bases:
                raise
            logger.error("a cleaning is undone, because its result is damaged: %s", error)
            half.delete(swap)
            continue
        # The first of them first: while its log file is there, all replaced segments are.
        for former in [base for base in bases if base_offset <= base < next_offset]:
            half.delete(f"{partition_dir}/{file_name(former, LOG_SUFFIX)}")
            _delete_sidecars(half, partition_dir, former)
        _delete_sidecars(half, partition_dir, base_offset)
        half.rename(swap, path)
        logger.info("the cleaning of %s is finished, up to offset %d", path, next_offset)
    half.flush_folder(partition_dir)
    return half.list(partition_dir)


def _delete_sidecars(half: FileHalf, partition_dir: str, base_offset: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        if suffix != LOG_SUFFIX:
            half.delete(f"{partition_dir}/{file_name(base_offset, suffix)}")


def _next_offset(half: FileHalf, path: str) -> int:
    handle = half.open(path)
    try:
        next_offset = -1
        for span in iter_spans(handle, 0, handle.size()):
            if span.base_offset < next_offset:
                raise CorruptLogError(path, span.position, "offsets go back")
            next_offset = span.last_offset + 1
        if next_offset < 0:
            raise CorruptLogError(path, 0, "the file is empty")
        return next_offset
    finally:
        handle.close()
