"""The loading of segments without recovery, because all their records were flushed.

Owns: the checks of a segment's files by ``.stats`` and by the ends of the indexes, and when the
indexes are rebuilt.  Must not know the recovery after a crash, or leader epochs.
"""

import logging
from collections.abc import Set
from contextlib import suppress

from sparklog.errors import CorruptLogError
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.recovery import LogRecovery
from sparklog.executors.log.segment import IndexDamageError, Segment
from sparklog.executors.log.segment_checks import indexes_fit
from sparklog.executors.log.time_index import TimeIndex
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.storage_backends.base import FileHalf
from sparklog.types import MAX_INT64

logger = logging.getLogger(__name__)


class TrustedSegments:
    """Loads the segments of one log; ``present`` are the names of the files in its directory."""

    __slots__ = ("_half", "_present", "_recovery")

    def __init__(self, half: FileHalf, recovery: LogRecovery, present: Set[str]) -> None:
        self._half = half
        self._recovery = recovery
        self._present = present

    def load_sealed(self, segments: list[Segment], count: int) -> None:
        """Load the sizes of all segments, and the indexes of the sealed ones among the first
        ``count``."""
        for index, segment in enumerate(segments):
            segment.size = self._half.size(segment.log_path)
            if index + 1 == len(segments):
                break
            following = segments[index + 1]
            if index < count:
                self._load_sealed(segment, following.base_offset)
                self._require_whole(segment, following)
            else:
                segment.load_sealed(segment.size, following.base_offset, 0, 0)

    def load_active(self, segment: Segment) -> None:
        """Load the active segment after a clean stop; if its files have changed, rebuild its
        indexes."""
        files = segment.files_at_rest()
        stats = files.check() if self._is_there(files.stats_path) else None
        if stats is not None:
            segment.confirm(stats)
            with suppress(IndexDamageError):  # then the log is damaged: the rebuild tells where
                segment.load_tail()
                return
        if segment.size == 0:
            self._empty_indexes(segment)
        else:
            self._rebuild(segment)

    def load_txn_indexes(self, segments: list[Segment]) -> None:
        """Take over the transaction indexes of trusted segments; mark the others for a rebuild."""
        for segment in segments:
            index = segment.txn_index
            with_markers = self._recovery.with_markers.get(segment.base_offset)
            is_there = self._is_there(index.path)
            if with_markers:
                index.stale = True
            elif is_there and with_markers is None:
                index.load(segment.next_offset)
            elif is_there:
                index.replace([])

    def _load_sealed(self, segment: Segment, next_offset: int) -> None:
        """Take over a sealed segment; only the end of its log file is read.

        The ``.stats`` tells where the log file ends and what the indexes hold; the bytes of the
        indexes are checked at their first use.  Without ``.stats``, indexes with plausible ends are
        trusted.
        """
        files = segment.files_at_rest()
        indexes = (segment.offset_index, segment.time_index)
        sizes = [self._size(index.path) for index in indexes]
        stats = files.read_header() if self._is_there(files.stats_path) else None
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
            pass  # the rebuild tells which of them is damaged
        self._rebuild(segment, next_offset)

    def _empty_indexes(self, segment: Segment) -> None:
        paths = [segment.offset_index.path, segment.time_index.path]
        if [self._size(path) for path in paths] != [0, 0]:
            segment.indexes.replace(
                IndexBuilder(segment.base_offset, segment.indexes.interval_bytes)
            )

    def _size(self, path: str) -> int | None:
        return self._half.size(path) if self._is_there(path) else None

    def _rebuild(self, segment: Segment, flushed_end: int | None = None) -> None:
        logger.warning(
            "%s and %s are missing or do not fit their log: they are made anew",
            segment.offset_index.path,
            segment.time_index.path,
        )
        self._recovery.rebuild(segment, check_end=MAX_INT64, flushed_end=flushed_end)
        # The next start does not check the new indexes against the log file.
        for path in segment.paths[1:]:
            self._half.flush(path)

    def _require_whole(self, segment: Segment, following: Segment) -> None:
        if not self._recovery.follows(segment, following):
            raise CorruptLogError(
                segment.log_path,
                segment.size,
                f"the segment ends at offset {segment.next_offset} and the next one begins at "
                f"{following.base_offset}",
            )

    def _is_there(self, path: str) -> bool:
        return path.rpartition("/")[2] in self._present
