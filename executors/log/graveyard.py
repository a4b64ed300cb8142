"""Segments that were deleted but whose files still lie there for a while.

Owns: renaming to ``.deleted`` and the later removal (``file.delete.delay.ms``).  Must not know why.
"""

from sparklog.executors.log.names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from sparklog.executors.log.segment import Segment
from sparklog.storage_backends.base import FileHalf


class Graveyard:
    """Renamed files and when each may go.  What a crash leaves is removed at the next opening."""

    __slots__ = ("_due", "_half")

    def __init__(self, half: FileHalf) -> None:
        self._half = half
        self._due: list[tuple[int, str]] = []

    def bury(self, segment: Segment, due_ms: int) -> None:
        """Rename the segment's files, the log first: without it the others are nothing."""
        segment.close()
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            if suffix == LOG_SUFFIX or self._half.exists(path):
                self._half.rename(path, path + DELETED_SUFFIX)
                self._due.append((due_ms, path + DELETED_SUFFIX))

    def purge(self, now_ms: int) -> int:
        """Remove what is due; how many files."""
        due = [path for due_ms, path in self._due if due_ms <= now_ms]
        for path in due:
            self._half.delete(path)
        self._due = [item for item in self._due if item[0] > now_ms]
        return len(due)
