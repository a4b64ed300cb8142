"""Segments that were deleted but whose files still lie there for a while.

Owns: renaming to ``.deleted`` and the later removal (``file.delete.delay.ms``).  Must not know why.
"""

from contextlib import suppress

from sparklog.errors import StorageError
from sparklog.executors.log.names import DELETED_SUFFIX, SEGMENT_SUFFIXES
from sparklog.executors.log.segment import Segment
from sparklog.storage_backends.base import FileHalf


class DeletedFiles:
    """Renamed files and when each may go.  What a crash leaves is removed at the next opening."""

    __slots__ = ("_due", "_half")

    def __init__(self, half: FileHalf) -> None:
        self._half = half
        self._due: list[tuple[int, str]] = []

    def bury(self, segment: Segment, due_ms: int) -> None:
        """Rename the segment's files.

        The log comes first, and with it the segment is gone: what of the others cannot be renamed
        is removed at the next opening.  Raises StorageError; then try again.
        """
        segment.close()
        if self._half.exists(segment.log_path):
            self._rename(segment.log_path, due_ms)
        for path in (segment.path(suffix) for suffix in SEGMENT_SUFFIXES[1:]):
            with suppress(StorageError):
                self._rename(path, due_ms)

    def _rename(self, path: str, due_ms: int) -> None:
        self._half.rename(path, path + DELETED_SUFFIX)
        self._due.append((due_ms, path + DELETED_SUFFIX))

    def purge(self, now_ms: int) -> int:
        """Remove what is due; how many files.  Blocks: a gigabyte takes a fifth of a second.

        Any thread may call it, one at a time, while others ``bury``.
        """
        due = [grave for grave in self._due if grave[0] <= now_ms]
        for grave in due:
            self._half.delete(grave[1])
            self._due.remove(grave)
        return len(due)
