"""Segments that were deleted, and whose files stay in the partition directory for a while.

Owns: renaming to ``.deleted`` and the later removal (``file.delete.delay.ms``).  Must not know why
a segment is deleted.
"""

from contextlib import suppress

from sparklog.errors import StorageError
from sparklog.executors.log.names import DELETED_SUFFIX, SEGMENT_SUFFIXES
from sparklog.executors.log.segment import Segment
from sparklog.storage_backends.base import FileHalf


class DeletedSegments:
    """Renamed files, and when each file is to be removed.

    The next opening removes the files that a crash leaves.
    """

    __slots__ = ("_due", "_half")

    def __init__(self, half: FileHalf) -> None:
        self._half = half
        self._due: list[tuple[int, str]] = []

    def add(self, segment: Segment, due_ms: int) -> None:
        """Rename the segment's files; ``purge`` removes them from ``due_ms`` on.

        The log file is renamed first; from then on the segment counts as deleted.  The next opening
        of the log removes index files that could not be renamed.  Raises StorageError; then call
        ``add`` again.
        """
        segment.close()
        if self._half.exists(segment.log_path):
            self._rename(segment.log_path, due_ms)
        for path in (segment.path(suffix) for suffix in SEGMENT_SUFFIXES[1:]):
            with suppress(StorageError):
                self._rename(path, due_ms)

    def purge(self, now_ms: int) -> int:
        """Remove the files that are due, and return how many.

        Blocks: a gigabyte takes a fifth of a second.  Any thread may call ``purge``, one at a time,
        while another thread calls ``add``.
        """
        due = [entry for entry in self._due if entry[0] <= now_ms]
        for entry in due:
            self._half.delete(entry[1])
            self._due.remove(entry)
        return len(due)

    def _rename(self, path: str, due_ms: int) -> None:
        """Rename a file; delete it at once where a full disk has no room for the longer name."""
        try:
            self._half.rename(path, path + DELETED_SUFFIX)
        except StorageError as error:
            if not error.is_full:
                raise
            self._half.delete(path)
        else:
            self._due.append((due_ms, path + DELETED_SUFFIX))
