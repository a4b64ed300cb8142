"""Local files: ``file://`` and plain paths.

Owns: the contract on a POSIX file system (atomic creation, durable names, locks).  Must not know
what the files mean.  Open files and their regions and maps are in ``local_files``.

Only their owner can read the files and folders made here: logs have users' data, journals a secret.
"""

import errno
import fcntl
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from sparklog.errors import StorageError
from sparklog.storage_backends.base import (
    TEMPORARY_PREFIX,
    Buffer,
    FileHalf,
    FileStatus,
    file_parts,
    locked_error,
    path_parts,
    storage_error,
)
from sparklog.storage_backends.descriptors import read_at, read_into, write_at
from sparklog.storage_backends.large_writes import DIRECT_APPEND_BYTES, LARGE_BYTES, LargeWrites
from sparklog.storage_backends.local_files import FILE_MODE, LocalFile

FOLDER_MODE = 0o700


def open_url(url: str, options: Mapping[str, Any]) -> "LocalBackend":
    """``file:///absolute/path`` or a plain path, ``~`` included.

    The only option is ``DIRECT_APPEND_BYTES``; options of object stores are ignored.
    """
    large_bytes = options.get(DIRECT_APPEND_BYTES, LARGE_BYTES)
    if not url.startswith("file://"):
        return LocalBackend(os.path.expanduser(url), large_bytes)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError(f"{url!r} is not a file URL; write file:///absolute/path")
    return LocalBackend(unquote(parts.path), large_bytes)


class LocalBackend(FileHalf):
    """A folder of the local file system."""

    atomic_put_if_absent = True

    def __init__(self, root: str | os.PathLike[str], large_bytes: int = LARGE_BYTES) -> None:
        """``large_bytes`` is the minimum size of a direct append in bytes; 0 disables it."""
        self.root = os.path.abspath(root)
        self.url = Path(self.root).as_uri()
        self._large_writes = LargeWrites(large_bytes)

    def __repr__(self) -> str:
        return f"LocalBackend({self.root!r})"

    def append(self, path: str, data: Buffer) -> None:
        full = self._full(path)
        with _storage_errors("append to", full):
            descriptor, created = self._open_to_append(full)
            try:
                before = os.fstat(descriptor).st_size
                try:
                    write_at(descriptor, [data], before)
                except OSError:
                    os.ftruncate(descriptor, before)
                    if created:
                        os.unlink(full)
                    raise
            finally:
                os.close(descriptor)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        full = self._full(path)
        with _storage_errors("read", full), _descriptor(full, os.O_RDONLY) as descriptor:
            end = os.fstat(descriptor).st_size
            wanted = end - offset if size is None else min(size, end - offset)
            return read_at(descriptor, offset, wanted)

    def read_into(self, path: str, offset: int, target: memoryview) -> int:
        full = self._full(path)
        with _storage_errors("read", full), _descriptor(full, os.O_RDONLY) as descriptor:
            return read_into(descriptor, offset, target)

    def size(self, path: str) -> int:
        full = self._full(path)
        with _storage_errors("look up", full):
            if os.path.isdir(full):
                raise IsADirectoryError(errno.EISDIR, "", full)
            return os.stat(full).st_size

    def exists(self, path: str) -> bool:
        return self._status(path) is not None

    def list(self, folder: str) -> list[str]:
        names = self._all_names(folder)
        return sorted(name for name in names if not name.startswith(TEMPORARY_PREFIX))

    def remove_leftovers(self, folder: str) -> int:
        return self._remove_leftovers(folder, math.inf)

    def remove_old_leftovers(self, folder: str, until_ms: int) -> int:
        return self._remove_leftovers(folder, until_ms)

    def _remove_leftovers(self, folder: str, until_ms: float) -> int:
        full, removed = self._full_folder(folder), 0
        names = [n for n in self._all_names(folder) if n.startswith(TEMPORARY_PREFIX)]
        with _storage_errors("tidy up", full):
            for name in names:
                leftover = os.path.join(full, name)
                with suppress(FileNotFoundError):
                    if os.stat(leftover).st_mtime_ns // 1_000_000 <= until_ms:
                        os.unlink(leftover)
                        removed += 1
        return removed

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        full = self._full(path)
        with _temporary("create", full, (data,)) as (temporary, _):
            created = _link(temporary, full)
            # This is needed also if the name was taken: the caller relies on the existing file.
            flush_names(os.path.dirname(full))
            return created

    def put(self, path: str, data: Buffer) -> None:
        self.upload(path, (data,))

    def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
        full = self._full(path)
        with _temporary("write", full, chunks) as (temporary, size):
            os.replace(temporary, full)
            flush_names(os.path.dirname(full))
            return size

    def rename(self, source: str, target: str) -> None:
        old, new = self._full(source), self._full(target)
        with _storage_errors(f"rename to {new} the file", old):
            if os.path.isdir(old):
                raise IsADirectoryError(errno.EISDIR, "", old)
            os.rename(old, new)

    def delete(self, path: str) -> None:
        full = self._full(path)
        with _storage_errors("delete", full), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(full)

    def truncate(self, path: str, size: int) -> None:
        handle = self.open(path)
        try:
            handle.truncate(size)
        finally:
            handle.close()

    def flush(self, path: str) -> None:
        full = self._full(path)
        with _storage_errors("flush", full):
            with _descriptor(full, os.O_RDONLY) as descriptor:
                os.fsync(descriptor)
            flush_names(os.path.dirname(full))

    def open(self, path: str, create: bool = False) -> LocalFile:
        full = self._full(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _storage_errors("open", full):
            return LocalFile(full, os.open(full, flags, FILE_MODE), self._large_writes)

    def make_folder(self, path: str) -> None:
        full = self._full_folder(path)
        with _storage_errors("make the folder", full):
            _make_folders(full)

    def remove_folder(self, path: str) -> None:
        full = self._full_folder(path)
        with _storage_errors("remove the folder", full), suppress(FileNotFoundError):
            shutil.rmtree(full)

    def rename_folder(self, source: str, target: str) -> None:
        old, new = self._full_folder(source), self._full_folder(target)
        with _storage_errors(f"rename to {new} the folder", old):
            if not os.path.isdir(old) and os.path.exists(old):
                raise NotADirectoryError(errno.ENOTDIR, "", old)
            if os.path.exists(new):
                raise FileExistsError(errno.EEXIST, "the name is taken", new)
            os.rename(old, new)

    def space(self) -> tuple[int, int]:
        try:
            found = os.statvfs(self.root)
        except OSError as error:
            raise storage_error("look at", str(self.root), error) from error
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def is_folder(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def look(self, path: str) -> FileStatus | None:
        status = self._status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        return FileStatus((status.st_dev, status.st_ino), status.st_size)

    def flush_folder(self, path: str) -> None:
        full = self._full_folder(path)
        with _storage_errors("flush the folder", full):
            flush_names(full)

    def lock(self, path: str) -> "FileLock":
        full = self._full(path)
        with _storage_errors("lock", full):
            return FileLock(full)

    def _all_names(self, folder: str) -> Sequence[str]:
        full = self._full_folder(folder)
        with _storage_errors("list", full):
            try:
                return os.listdir(full)
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def _status(self, path: str) -> os.stat_result | None:
        """The status of a path; None if it is missing.  Any other failure is an error."""
        full = self._full_folder(path)
        with _storage_errors("look up", full):
            try:
                return os.stat(full)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _full(self, path: str) -> str:
        return os.path.join(self.root, *file_parts(path))

    def _full_folder(self, path: str) -> str:
        return os.path.join(self.root, *path_parts(path))

    @staticmethod
    def _open_to_append(full: str) -> tuple[int, bool]:
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            return os.open(full, flags), False
        except FileNotFoundError:
            _make_folders(os.path.dirname(full))
            return os.open(full, flags | os.O_CREAT, FILE_MODE), True


class FileLock:
    """``flock`` on a file with the owner's process id and host; the file stays after the release.

    The lock belongs to the open file, so it ends with the process, however the process ends.
    """

    def __init__(self, full: str) -> None:
        self._descriptor: int | None = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = f"{os.getpid()} {os.uname().nodename}\n".encode()
            os.ftruncate(self._descriptor, os.pwrite(self._descriptor, owner, 0))
        except BlockingIOError:
            holder = os.pread(self._descriptor, 256, 0).decode(errors="replace").split()
            self.release()
            raise locked_error(os.path.dirname(full), *holder[:2]) from None
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # The lock is released explicitly: a forked child may still have the same open file.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def flush_names(folder: str) -> None:
    """Make the names in a folder durable, by an fsync of the folder."""
    with _descriptor(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            # File systems that keep names durable by other means answer EINVAL.
            if error.errno != errno.EINVAL:
                raise


def _link(temporary: str, full: str) -> bool:
    try:
        os.link(temporary, full)
    except FileExistsError:
        # Over NFS the answer can be lost, and the repeated call fails.  A second name of the
        # temporary file shows that the first call has succeeded.
        return os.stat(temporary).st_nlink > 1
    return True


def _make_folders(full: str) -> None:
    if os.path.isdir(full):
        return
    parent = os.path.dirname(full)
    _make_folders(parent)
    try:
        os.mkdir(full, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(full):
            raise NotADirectoryError(errno.ENOTDIR, "", full) from None
    flush_names(parent)


@contextmanager
def _temporary(action: str, full: str, chunks: Iterable[Buffer]) -> Iterator[tuple[str, int]]:
    """A durable temporary file beside ``full`` with the bytes of ``chunks``, removed in the end.

    Yields its path and size.  Errors of the system become StorageErrors that name ``action``, those
    of ``chunks`` pass through.
    """
    folder = os.path.dirname(full)
    with _storage_errors(action, full):
        _make_folders(folder)
        descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=folder)
    try:
        try:
            size = 0
            for chunk in chunks:
                with _storage_errors(action, full):
                    size += write_at(descriptor, [chunk], size)
            with _storage_errors(action, full):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with _storage_errors(action, full):
            yield temporary, size
    finally:
        with suppress(OSError):
            os.unlink(temporary)


@contextmanager
def _descriptor(full: str, flags: int) -> Iterator[int]:
    descriptor = os.open(full, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _storage_errors(action: str, where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(action, where, error) from error
