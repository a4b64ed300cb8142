"""The storage contract: the promises of a backend, and the values that it returns.

Owns: the two halves of the contract (see the package's docstring), the shapes of handles, regions,
maps and locks, and the wording of storage errors.  Must not know any particular store.
"""

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeAlias

from sparklog.errors import ChangedFileError, LockedError, StorageError

#: Buffers of bytes (a memoryview must have format ``B``).
Buffer = bytes | bytearray | memoryview

#: The prefix of the names of temporary files.  A killed writer may leave such a file; no listing
#: shows it, and ``remove_leftovers`` removes it.
TEMPORARY_PREFIX = ".sparklog-tmp-"


#: Identifies a file independently of its name; files that exist at the same time differ in it.
FileIdentity: TypeAlias = tuple[int, int]


class FileStatus(NamedTuple):
    """The file that a path leads to now: its identity, and its size in bytes."""

    identity: FileIdentity
    size: int


class MissingPathError(StorageError):
    """The path does not exist."""


class RefusedDeletesError(StorageError):
    """The store refused to delete some of the files of a ``delete_many``; all others are gone.

    ``paths`` are the refused files, and the message names the first of them.
    """

    paths: frozenset[str] = frozenset()


class Region(Protocol):
    """A range of a file's bytes, ready to be sent.

    A region stays valid after its handle is closed and after the file is renamed or deleted, until
    ``release()`` or until nothing refers to the region.  If the file is truncated below the
    region's end, the region reads short.
    """

    @property
    def size(self) -> int: ...

    def descriptor(self) -> tuple[int, int] | None:
        """(file descriptor, position) for ``sendfile``; None if only ``view`` works."""

    def view(self) -> memoryview:
        """The bytes: a copy from a file, shared memory of a memory store."""

    def read(self) -> bytes: ...

    def release(self) -> None:
        """Release the descriptor.  This may be called twice."""


class Map(Protocol):
    """The first bytes of a file, mapped for reading and writing."""

    @property
    def buffer(self) -> memoryview: ...

    @property
    def identity(self) -> FileIdentity:
        """The identity of the mapped file."""

    def reserve(self, end: int) -> None:
        """Allocate disk space for the bytes ``[0, end)`` before they are written.

        A mapped file is sparse.  A store into a hole on a full disk would kill the process, whereas
        this method raises StorageError.
        """

    def flush(self) -> None:
        """Make the mapped bytes durable.  This blocks."""

    def close(self) -> None:
        """Unmap the file.  No view of ``buffer`` may exist any more.  This may be called twice."""


class Lock(Protocol):
    """A lock that is held until ``release()`` or until its process ends."""

    def release(self) -> None:
        """Release the lock.  This may be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class FileHandle(Protocol):
    """An open file.  One handle at a time writes to a path, and only it changes the file's size."""

    @property
    def path(self) -> str: ...

    @property
    def identity(self) -> FileIdentity: ...

    def size(self) -> int:
        """The file's size in bytes, as this handle knows it."""

    def writev(self, buffers: Sequence[Buffer]) -> int:
        """Append all buffers, or change nothing and raise StorageError.

        A process that is killed meanwhile may leave any prefix of the bytes.

        Returns:
            The number of bytes appended.

        Raises:
            ChangedFileError: the file is shorter than this handle knows.
            StorageError: nothing was appended.
        """

    def read(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer at the end of the file, none beyond it."""

    def region(self, offset: int, size: int) -> Region:
        """The range, clipped to the file's end as this handle knows it.

        Raises:
            ChangedFileError: the file is shorter than this handle knows.
        """

    def overwrite(self, offset: int, data: Buffer) -> None:
        """Replace existing bytes at ``offset``; the size of the file does not change.

        Handles that do not append to the file may use this too.  A process that is killed meanwhile
        may leave any mixture of old and new bytes.
        """

    def truncate(self, size: int) -> None:
        """Truncate the file.  It must not be mapped; a size beyond its end is refused."""

    def flush(self) -> None:
        """Make everything durable that was written before this call.

        This blocks, and may be called in another thread.  After a failure the system may have
        dropped bytes that were not durable, and a later success tells nothing about them.
        Therefore the handle refuses every further write and flush.
        """

    def map(self, size: int) -> Map:
        """Map the first ``size`` (> 0) bytes; a shorter file is extended by sparse zeros.

        The map outlives the handle and needs one file descriptor of its own.
        """

    def close(self) -> None:
        """Close the file without a flush.  This may be called twice."""


class StorageBackend(ABC):
    """The operations of every store.  All methods block and raise StorageError."""

    #: The URL of the root; ``open_backend(url)`` gives an equal backend.
    url: str
    #: Whether exactly one of several racing ``put_if_absent`` wins.
    atomic_put_if_absent: bool

    def proves_put_if_absent(self) -> bool:
        """``atomic_put_if_absent``, verified by a test write where the claim may be wrong."""
        return self.atomic_put_if_absent

    @abstractmethod
    def append(self, path: str, data: Buffer) -> None:
        """Append all bytes or none, creating file and folders.  Durable after ``flush``."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Read a range (to the end if ``size`` is None); the result is shorter at the end."""

    def read_into(self, path: str, offset: int, target: memoryview) -> int:
        """Read from ``offset`` on into ``target``; the number of bytes, fewer at the file's end."""
        data = self.read(path, offset, len(target))
        target[: len(data)] = data
        return len(data)

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Read whole files, in the order of the paths; concurrently if single reads are slow."""
        return [self.read(path) for path in paths]

    def read_if_there(self, path: str) -> bytes | None:
        """Read a whole file; None if it is missing.  One request, where ``exists`` adds others."""
        try:
            return self.read(path)
        except MissingPathError:
            return None

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the path is a file or a folder."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """The names of all files and folders directly in ``folder``, sorted; none if it is missing.

        Folders of an object store exist only while something is in them.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Create the file with these bytes unless its name is taken.  Atomic and durable.

        Returns:
            True if this call has created the file.  False if the name was taken; the existing file
            is durable then.

        Raises:
            StorageError: the outcome is unknown; read the file back.
        """

    @abstractmethod
    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the file, atomically and durably."""

    @abstractmethod
    def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
        """As ``put``, with bytes that are written while they are produced.

        The bytes are never in memory as a whole: a store that takes parts gets parts of a fixed
        size, of which two at most are held.  A chunk's memory may be reused once the next chunk is
        asked for.  An exception of ``chunks`` passes through unchanged; then nothing was written.
        A killed process leaves at most what ``remove_leftovers`` removes.

        Returns:
            The number of bytes written.

        Raises:
            StorageError: the file is as before, or has all bytes.
        """

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing a file of the new name.  Atomic only on file systems."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; a missing one is not an error."""

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete files, in few requests if the store can; missing ones are not an error.

        The paths must not be folders.

        Raises:
            RefusedDeletesError: the store refused to delete some of the files, for instance because
                they are locked; all others are gone.
            StorageError: any of the files may be there or not.
        """
        refused: dict[str, StorageError] = {}
        for path in paths:
            try:
                self.delete(path)
            except StorageError as error:
                if error.code not in _REFUSALS:
                    raise
                refused[path] = error
        if refused:
            raise refused_deletes(refused)

    @abstractmethod
    def truncate(self, path: str, size: int) -> None:
        """Truncate a file to ``size`` bytes; a size beyond its end is refused."""

    @abstractmethod
    def flush(self, path: str) -> None:
        """Make a file's bytes and its name durable."""

    def presign(self, path: str, seconds: int) -> str | None:
        """A URL from which anybody can GET a file, or ranges of it, for this many seconds.

        The URL is a secret.  It is computed without a request, so the file may be missing.

        Returns:
            None if the store has no such URLs.

        Raises:
            StorageError: there are no credentials to sign with, or the store allows no such time.
        """
        return None

    def presign_many(self, paths: Sequence[str], seconds: int) -> Sequence[str | None]:
        """The URLs of many files, in the order of the paths; a bucket signs many for less.

        Raises StorageError, as ``presign`` does.
        """
        return [self.presign(path, seconds) for path in paths]

    def remove_leftovers(self, folder: str) -> int:
        """Remove temporary files that killed writers have left directly in ``folder``.

        No listing shows these files.  A ``put``, ``put_if_absent`` or ``upload`` in progress may
        fail.

        Returns:
            The number of removed files (of an object store: unfinished uploads).
        """
        return 0

    def remove_old_leftovers(self, folder: str, until_ms: int) -> int:
        """``remove_leftovers`` of files that were last written at ``until_ms`` or earlier.

        The time is that of the store's clock, in milliseconds since the epoch.  Where a store does
        not tell the age of unfinished uploads, none is removed.
        """
        return 0


class FileHalf(StorageBackend):
    """A store of files: one that has the second half of the operations, too.

    The first half is ``StorageBackend``, which every store has; the second half are the operations
    that only file systems have.  An attribute ``half`` is a store with both halves.
    """

    @abstractmethod
    def open(self, path: str, create: bool = False) -> FileHandle:
        """Open a file to read and write; ``create`` makes a missing file in an existing folder."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Make a folder and its parents, durably, unless they exist.  ``""`` is the root."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it; a missing one is not an error."""

    @abstractmethod
    def rename_folder(self, source: str, target: str) -> None:
        """Rename a folder, atomically.  The new name must be free."""

    @abstractmethod
    def is_folder(self, path: str) -> bool: ...

    @abstractmethod
    def look(self, path: str) -> FileStatus | None:
        """The file that a path leads to now; None if there is no file."""

    def space(self) -> tuple[int, int]:
        """The size of the volume and its usable free space, in bytes; -1 for no limit."""
        return -1, -1

    @abstractmethod
    def flush_folder(self, path: str) -> None:
        """Make the created, renamed and deleted names in a folder durable."""

    @abstractmethod
    def lock(self, path: str) -> Lock:
        """Take the lock file ``path``, in an existing folder, for this process.

        Raises:
            LockedError: names the holder's process id and the folder.
        """


def file_half(backend: StorageBackend) -> FileHalf:
    """The file half of a backend.  Raises StorageError for a store without one."""
    if isinstance(backend, FileHalf):
        return backend
    raise StorageError(
        f"{backend.url} has no open files, maps or locks; use a local folder (file://) for this "
        "(an object store can hold the journal: journal_dir)"
    )


def path_parts(path: str) -> tuple[str, ...]:
    """The names in a path; ``""`` is the root.  Raises StorageError for a path outside the root."""
    if not path:
        return ()
    parts = tuple(path.split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise StorageError(f"{path!r} is not a path below a storage root, such as folder/name")
    return parts


def file_parts(path: str) -> tuple[str, ...]:
    """The names in a file's path, which cannot be the root."""
    parts = path_parts(path)
    if not parts:
        raise StorageError("an empty path is the root folder, not a file; give a file's path")
    return parts


_REASONS: dict[int, str] = {
    errno.ENOSPC: "the disk is full; free space or move the data to a larger disk",
    errno.EDQUOT: "the disk quota is used up; free space or raise the quota",
    errno.EFBIG: "the file would exceed the size limit; raise `ulimit -f`",
    errno.EROFS: "the file system is read-only; mount it writable or choose another folder",
    errno.EACCES: "permission denied; give this user access or choose another folder",
    errno.EPERM: "the file system does not permit it; choose a folder on another one",
    errno.EOPNOTSUPP: "the file system cannot do it; choose a folder on a local disk",
    errno.ENOENT: "it does not exist; check the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another path",
    errno.EISDIR: "it is a folder, not a file; choose another path",
    errno.EMFILE: "too many open files in this process; raise `ulimit -n`",
    errno.ENFILE: "too many open files on this machine; raise the system's limit",
    errno.EIO: "the device failed; check the disk and the system's log",
}


def storage_error(action: str, where: str, error: OSError) -> StorageError:
    """The StorageError for an error of the system: action, path, reason and remedy."""
    code = error.errno or 0
    reason = _REASONS.get(code) or error.strerror or str(error)
    kind = MissingPathError if code == errno.ENOENT else StorageError
    found = kind(f"cannot {action} {where}: {reason}")
    found.code = code
    return found


#: Error numbers of files that the system protects, or that are in use.
_REFUSALS = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY))


def refused_deletes(refused: Mapping[str, StorageError]) -> RefusedDeletesError:
    """The error for files that were not deleted, by path."""
    message = str(next(iter(refused.values())))
    if len(refused) > 1:
        message += f" (and {len(refused) - 1} more files were not deleted)"
    found = RefusedDeletesError(message)
    found.paths = frozenset(refused)
    return found


def shrunk_error(where: str, size: int, known: int) -> ChangedFileError:
    """The error for a file of ``size`` bytes of which ``known`` bytes were written."""
    return ChangedFileError(
        f"{where} has {size} bytes where {known} were written; something else cut it"
    )


def locked_error(folder: str, pid: str = "unknown", host: str | None = None) -> LockedError:
    """The error that names the holder of the lock in ``folder``, and the remedy."""
    where = f" on {host}" if host else ""
    return LockedError(
        f"{folder} is in use by process {pid}{where}; stop that process or choose another folder"
    )
