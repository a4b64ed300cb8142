"""The storage contract: what a backend promises, and the values it hands out.

Owns: the two halves of the contract (see the package's docstring), the shapes of handles, regions,
maps and locks, and the wording of storage errors.  Must not know any particular store.
"""

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeAlias

from sparklog.errors import ChangedFileError, LockedError, StorageError

#: Byte-shaped buffers (a memoryview must have format ``B``).
Buffer = bytes | bytearray | memoryview


#: Which file it is, whatever its name; two files that exist at the same time differ in it.
FileIdentity: TypeAlias = tuple[int, int]


class FileStatus(NamedTuple):
    """What a path leads to now: which file, and its size in bytes."""

    identity: FileIdentity
    size: int


class MissingPathError(StorageError):
    """A path that is not there."""


class Region(Protocol):
    """A range of a file's bytes, ready to be sent.

    It stays valid when the handle it came from is closed and when the file is renamed or deleted,
    until ``release()`` (or until nobody refers to it).  When the file is cut below its end, it
    reads short.
    """

    @property
    def size(self) -> int: ...

    def descriptor(self) -> tuple[int, int] | None:
        """(file descriptor, position) for ``sendfile``, or None when only ``view`` works."""

    def view(self) -> memoryview:
        """The bytes; copied from a file, shared by a memory store."""

    def read(self) -> bytes: ...

    def release(self) -> None:
        """Let go of the descriptor.  May be called twice."""


class Map(Protocol):
    """The first bytes of a file, mapped for reading and writing."""

    @property
    def buffer(self) -> memoryview: ...

    @property
    def identity(self) -> FileIdentity:
        """Of the mapped file."""

    def reserve(self, end: int) -> None:
        """Make sure that disk space stands behind ``[0, end)`` before it is written.

        A mapped file is sparse; a store into a hole of a full disk kills the process, while this
        raises StorageError.
        """

    def flush(self) -> None:
        """Make the mapped bytes durable.  Blocks."""

    def close(self) -> None:
        """Unmap.  Views taken from ``buffer`` must be gone.  May be called twice."""


class Lock(Protocol):
    """A lock that is held until ``release()`` or until its process ends."""

    def release(self) -> None:
        """May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class FileHandle(Protocol):
    """An open file.  One handle at a time writes to a path; it alone changes the file's size."""

    @property
    def path(self) -> str: ...

    @property
    def identity(self) -> FileIdentity: ...

    def size(self) -> int:
        """As this handle knows it."""

    def writev(self, buffers: Sequence[Buffer]) -> int:
        """Append all buffers, or change nothing and raise StorageError.  Returns the bytes added.

        A process killed in the middle may leave any prefix of them.  Raises ChangedFileError when
        something else made the file shorter than this handle knows it.
        """

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer at the end of the file, none behind it."""

    def region(self, offset: int, size: int) -> Region:
        """The range, clipped to the file's end as this handle knows it.

        Raises ChangedFileError when something else made the file shorter.
        """

    def overwrite(self, offset: int, data: Buffer) -> None:
        """Replace the bytes at ``offset``, all of which are there; the size stays what it is.

        A handle that does not append to the file may do this too.  A process killed in the middle
        may leave any mixture of old and new bytes.
        """

    def truncate(self, size: int) -> None:
        """Cut the file back.  It must not be mapped; a size behind the end is refused."""

    def flush(self) -> None:
        """Make everything written before this call durable.  Blocks; safe in another thread.

        After a failure the system may have dropped what was not durable, and a later success says
        nothing about it: the handle refuses every further write and flush.
        """

    def map(self, size: int) -> Map:
        """Map the first ``size`` (> 0) bytes; a shorter file is extended by (sparse) zeros.

        The map outlives the handle and costs one descriptor of its own.
        """

    def close(self) -> None:
        """Does not flush.  May be called twice."""


class StorageBackend(ABC):
    """What every store can do.  All methods block and raise StorageError."""

    #: Where the root is; ``open_backend(url)`` gives an equal backend.
    url: str
    #: Whether exactly one of several racing ``put_if_absent`` wins.
    atomic_put_if_absent: bool

    def proves_put_if_absent(self) -> bool:
        """``atomic_put_if_absent``, tried out where a store might only pretend to it."""
        return self.atomic_put_if_absent

    @abstractmethod
    def append(self, path: str, data: Buffer) -> None:
        """Add to the end, creating file and folders; all or nothing.  Durable after ``flush``."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes of a range (to the end when ``size`` is None); fewer at the end of the file."""

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Whole files, in the order of their paths; at once where each would take its time."""
        return [self.read(path) for path in paths]

    def read_if_there(self, path: str) -> bytes | None:
        """A whole file, or None when there is none: one request, where ``exists`` takes several."""
        try:
            return self.read(path)
        except MissingPathError:
            return None

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """Names of the files and folders directly in ``folder``, sorted; none when it is missing.

        Folders of an object store exist only while something is in them.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Create the file with these bytes unless its name is taken.  Atomic and durable.

        True: created by this call.  False: the name was taken, and what is there is durable.
        StorageError: unknown; read it back.
        """

    @abstractmethod
    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the file, atomically and durably."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name.  Atomic only on files."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; a missing one is not an error."""

    @abstractmethod
    def truncate(self, path: str, size: int) -> None:
        """Cut a file back to ``size`` bytes; a size behind its end is refused."""

    @abstractmethod
    def flush(self, path: str) -> None:
        """Make a file's bytes and its name durable."""

    def remove_leftovers(self, folder: str) -> int:
        """Remove what killed writers left directly in ``folder`` (no listing shows it); how many.

        A ``put`` or ``put_if_absent`` that is under way there may fail.
        """
        return 0


class FileHalf(StorageBackend):
    """What only files can do, on top of the contract that every store fulfils."""

    @abstractmethod
    def open(self, path: str, create: bool = False) -> FileHandle:
        """Open for reading and writing; ``create`` makes a missing file (in an existing folder)."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, durably; an existing one is fine.  ``""``: the root."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it; a missing one is not an error."""

    @abstractmethod
    def rename_folder(self, source: str, target: str) -> None:
        """Give a folder another name, which must be free; atomic."""

    @abstractmethod
    def is_folder(self, path: str) -> bool: ...

    @abstractmethod
    def look(self, path: str) -> FileStatus | None:
        """Which file a path leads to now; None when there is none."""

    def space(self) -> tuple[int, int]:
        """Bytes of the volume, and how many of them can still be used; -1 for no limit."""
        return -1, -1

    @abstractmethod
    def flush_folder(self, path: str) -> None:
        """Make the names in a folder durable (created, renamed and deleted ones)."""

    @abstractmethod
    def lock(self, path: str) -> Lock:
        """Hold the lock file ``path`` (in an existing folder) for this process.

        Raises LockedError naming the holder's pid and the folder.
        """


def file_half(backend: StorageBackend) -> FileHalf:
    """The backend as files.  Raises StorageError for a store that has none."""
    if isinstance(backend, FileHalf):
        return backend
    raise StorageError(
        f"{backend.url} has no open files, maps or locks; use a local folder (file://) for this "
        "(an object store can hold the journal: journal_dir)"
    )


def path_parts(path: str) -> tuple[str, ...]:
    """The names in a path; ``""`` is the root.  Raises StorageError for a path that leaves it."""
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
    """The system's error as ours: what was tried, on which path, why it failed, what to do."""
    code = error.errno or 0
    reason = _REASONS.get(code) or error.strerror or str(error)
    kind = MissingPathError if code == errno.ENOENT else StorageError
    found = kind(f"cannot {action} {where}: {reason}")
    found.code = code
    return found


def shrunk_error(where: str, size: int, known: int) -> ChangedFileError:
    """A file has ``size`` bytes where its owner had written ``known``."""
    return ChangedFileError(
        f"{where} has {size} bytes where {known} were written; something else cut it"
    )


def locked_error(folder: str, pid: str = "unknown", host: str | None = None) -> LockedError:
    """Who holds the lock in ``folder``, and what to do."""
    where = f" on {host}" if host else ""
    return LockedError(
        f"{folder} is in use by process {pid}{where}; stop that process or choose another folder"
    )
