"""The open files of a broker's logs, limited.

Owns: which log files and index maps are open, and closing the least recently used.  Must not know
what is in them.  A Python map keeps a descriptor, so it counts as a file.

The limit should be above the number of files in use.  Where partitions are used in turns, a cache
that is a little too small misses every time.
"""

from collections import OrderedDict
from typing import Final

from sparklog.errors import ChangedFileError, StorageError
from sparklog.storage_backends.base import FileHalf, FileHandle, FileIdentity, Map, shrunk_error

#: Open files that stay open although they are idle.
KEPT_IDLE: Final = 400
#: Idle files that are closed at once.
CLOSED_AT_ONCE: Final = 100
#: The mark between files that were used since the last round and files that were not.
_MARK: Final = ""


class FileCache:
    """An LRU of open files, shared by the logs of one broker.

    A returned file is valid until the next call: use it at once, do not keep it.  Not thread-safe,
    except for ``drop``, which logs call while worker threads close them.
    """

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        #: The open files by path, the least recently used first, and ``_MARK``.
        self._handles: OrderedDict[str, FileHandle | Map | None] = OrderedDict({_MARK: None})
        #: The identity of each file at its first opening, until ``drop``.
        self._identities: dict[str, FileIdentity] = {}
        #: The directories of logs with appends; ``LogWatch`` takes them out.
        self.appended: dict[str, None] = {}
        self.opened_count = 0
        self._over = False

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._handles) - 1

    def __contains__(self, path: str) -> bool:
        return path in self._handles

    def handle(self, half: FileHalf, path: str, size: int) -> FileHandle:
        """The open file, whose contents end at ``size`` as its owner knows.

        Bytes behind ``size``, from a failed write that could not be undone, are cut off here.
        Raises ChangedFileError for a shorter file, or another file than the one opened before.
        """
        found = self._handles.get(path)
        if found is not None:
            self._handles.move_to_end(path)
            return found  # type: ignore[return-value]
        self._require_open(path)
        handle = half.open(path)
        if handle.size() < size:
            raise shrunk_error(handle.path, handle.size(), size)
        if self._identities.setdefault(path, handle.identity) != handle.identity:
            raise ChangedFileError(f"{handle.path} is not the file that was written")
        if handle.size() > size:
            handle.truncate(size)
        self._keep(path, handle)
        return handle

    def map(self, half: FileHalf, path: str, size: int) -> Map:
        """The first ``size`` bytes of the file, mapped."""
        found = self._handles.get(path)
        if found is not None:
            self._handles.move_to_end(path)
            return found  # type: ignore[return-value]
        self._require_open(path)
        handle = half.open(path, create=True)
        try:
            mapped = handle.map(size)
        finally:
            handle.close()
        self._keep(path, mapped)
        return mapped

    def drop(self, path: str) -> None:
        """Close a file.  Call this before the file is truncated, renamed or deleted."""
        self._identities.pop(path, None)
        found = self._handles.pop(path, None)
        if found is not None:
            found.close()

    def identity(self, path: str) -> FileIdentity | None:
        """The identity of a log file, if it was opened and not dropped since."""
        return self._identities.get(path)

    def close(self, *, for_good: bool = False) -> None:
        """Close all files; with ``for_good``, refuse to open files again."""
        self._over = for_good
        self._identities.clear()
        while len(self) > 0:
            self._close_oldest()

    def close_idle(self) -> bool:
        """Close some of the files that were not used since the last round, but keep ``KEPT_IDLE``.

        Returns True if there are more of them: call again.  False ends the round.
        """
        for _ in range(CLOSED_AT_ONCE):
            if len(self) <= KEPT_IDLE or not self._close_oldest():
                self._handles.move_to_end(_MARK)
                return False
        return True

    def _require_open(self, path: str) -> None:
        # The path may lead to a successor's file by now, which would be truncated to this size.
        if self._over:
            raise StorageError(f"the log of {path} was closed")

    def _keep(self, path: str, opened: FileHandle | Map) -> None:
        self.opened_count += 1
        while len(self) >= self._limit:
            self._close_oldest()
        self._handles[path] = opened

    def _close_oldest(self) -> bool:
        """Close the least recently used file; if the mark comes first, move it and return False."""
        path, opened = self._handles.popitem(last=False)
        if opened is None:
            self._handles[path] = opened
            return False
        opened.close()
        return True
