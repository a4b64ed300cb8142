"""Open local files: gathered writes, regions, maps.

Owns: the operations of a handle, and the sharing of its descriptor.  Must not know any name except
the file's path, nor how a large write is done (``large_writes``).

A handle and its regions share a descriptor, which is closed when the last of them releases it.
Work in another thread has a plain reference to the descriptor.  So a descriptor is never closed,
and its number never reused, during a flush.
"""

import mmap
import os
from collections.abc import Callable, Sequence

from sparklog.errors import ChangedFileError, StorageError
from sparklog.storage_backends.base import Buffer, FileIdentity, shrunk_error, storage_error
from sparklog.storage_backends.descriptors import Descriptor, read_at, write_at
from sparklog.storage_backends.large_writes import LargeWrites, TailReaders

FILE_MODE = 0o600
#: Disk space for maps is allocated in steps of this many bytes.
_RESERVE_STEP_BYTES = 16 * 1024
#: The advice about access to a map; None where the system takes no advice.
_RANDOM: int | None = getattr(mmap, "MADV_RANDOM", None)


class LocalFile:
    """An open file (``FileHandle``).

    Writes go to the end that the handle remembers, not to the file's end.  So the rest of a failed
    write that could not be truncated is overwritten.
    """

    __slots__ = (
        "_descriptor",
        "_failed_flush",
        "_large_writes",
        "_readers",
        "_size",
        "_tail_to_cut",
        "identity",
        "path",
    )

    def __init__(self, path: str, descriptor: int, large_writes: LargeWrites) -> None:
        self.path = path
        self._large_writes = large_writes
        self._descriptor: Descriptor | None = Descriptor(descriptor)
        status = os.fstat(descriptor)
        self.identity: FileIdentity = status.st_dev, status.st_ino
        self._size = status.st_size
        self._readers = TailReaders(self._size)
        self._tail_to_cut = False
        self._failed_flush = False

    def size(self) -> int:
        return self._size

    def writev(self, buffers: Sequence[Buffer]) -> int:
        descriptor = self._writable()
        try:
            self._check_end(descriptor.number)
            if self._tail_to_cut:
                self._cut(descriptor.number, self._size)
            written = self._write(descriptor.number, buffers)
        except OSError as error:
            self._cut_tail(descriptor.number)
            raise storage_error("write to", self.path, error) from error
        except ChangedFileError:
            raise
        except BaseException:
            self._tail_to_cut = True
            raise
        self._size += written
        return written

    def read(self, offset: int, size: int) -> bytes:
        descriptor = self._open()
        try:
            return read_at(descriptor.number, offset, self._asked(offset, size))
        except OSError as error:
            raise storage_error("read", self.path, error) from error

    def region(self, offset: int, size: int) -> "LocalRegion":
        descriptor = self._open()
        # Otherwise a response could be started whose bytes do not exist.
        self._check_end(descriptor.number)
        return LocalRegion(self.path, descriptor, offset, max(0, self._asked(offset, size)))

    def overwrite(self, offset: int, data: Buffer) -> None:
        descriptor = self._writable()
        _check_within(self.path, offset, len(data), self._size)
        try:
            write_at(descriptor.number, (data,), offset)
        except OSError as error:
            raise storage_error("write to", self.path, error) from error

    def truncate(self, size: int) -> None:
        descriptor = self._writable()
        if not 0 <= size <= self._size:
            raise StorageError(f"cannot cut {self.path} to {size} bytes: it has {self._size}")
        try:
            self._check_end(descriptor.number)
            self._cut(descriptor.number, size)
        except OSError as error:
            raise storage_error("cut", self.path, error) from error

    def flush(self) -> None:
        descriptor = self._writable()
        try:
            os.fdatasync(descriptor.number)
        except OSError as error:
            self._failed_flush = True
            raise storage_error("flush", self.path, error) from error

    def map(self, size: int) -> "LocalMap":
        descriptor = self._writable()
        try:
            if self._size < size:
                os.ftruncate(descriptor.number, size)
                self._size = size
            return LocalMap(self.path, descriptor.number, size)
        except OSError as error:
            raise storage_error("map", self.path, error) from error

    def close(self) -> None:
        self._descriptor = None

    def _write(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers at the end."""
        if self._readers.have_gone(self._size):
            return self._large_writes.write(descriptor, buffers, self._size)
        return write_at(descriptor, buffers, self._size)

    def _asked(self, offset: int, size: int) -> int:
        """The existing bytes of a range that is going to be read."""
        there = min(size, self._size - offset)
        self._readers.record_read(offset + there, self._size)
        return there

    def _open(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise StorageError(f"{self.path} was closed; open it again")
        return descriptor

    def _writable(self) -> Descriptor:
        if self._failed_flush:
            raise StorageError(
                f"{self.path} could not be flushed before, so its last bytes may be lost; "
                "check the disk, then open and recover it again"
            )
        return self._open()

    def _check_end(self, descriptor: int) -> None:
        """Refuse a file that something else has truncated.

        Further writes, or a longer file, would hide that bytes are lost.
        """
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end < self._size:
            raise shrunk_error(self.path, end, self._size)

    def _cut(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)
        self._size = size
        self._readers.cut(size)
        self._tail_to_cut = False

    def _cut_tail(self, descriptor: int) -> None:
        self._tail_to_cut = True
        try:
            self._cut(descriptor, self._size)
        except OSError:
            # The mark stays, so the next write tries again.  The caller raises the write's error.
            return


class LocalRegion:
    """A range of an open file (``Region``)."""

    __slots__ = ("_descriptor", "_offset", "_path", "size")

    def __init__(self, path: str, descriptor: Descriptor, offset: int, size: int) -> None:
        self._path = path
        self._descriptor: Descriptor | None = descriptor
        self._offset = offset
        self.size = size

    def descriptor(self) -> tuple[int, int]:
        return self._held().number, self._offset

    def view(self) -> memoryview:
        return memoryview(self.read())

    def read(self) -> bytes:
        descriptor = self._held()
        try:
            return read_at(descriptor.number, self._offset, self.size)
        except OSError as error:
            raise storage_error("read", self._path, error) from error

    def release(self) -> None:
        self._descriptor = None

    def _held(self) -> Descriptor:
        assert self._descriptor is not None, f"region of {self._path} was released"
        return self._descriptor


class LocalMap:
    """A shared mapping (``Map``).

    The only descriptor is the one that ``mmap`` keeps and hides.  Operations that need a descriptor
    open the file by its name and check that it is still the same file.
    """

    __slots__ = ("_map", "_path", "_reserved", "_size", "buffer", "identity")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        assert size > 0, f"an empty map of {path}"
        self._path = path
        self._size = size
        self._reserved = 0
        self.identity = _identity(descriptor)
        self._map = mmap.mmap(descriptor, size)
        if _RANDOM is not None:
            # Otherwise the first store into an empty map reads megabytes of zeros around it: 2.7 ms
            # and that much page cache, where the page alone takes 12 us.
            self._map.madvise(_RANDOM)
        self.buffer = memoryview(self._map)

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        assert end <= self._size, f"{end} is behind the end of the map of {self._path}"
        steps = -(-end // _RESERVE_STEP_BYTES)
        end = min(steps * _RESERVE_STEP_BYTES, self._size)
        try:
            self._with_descriptor(
                lambda number: os.posix_fallocate(number, self._reserved, end - self._reserved)
            )
        except OSError as error:
            raise storage_error("extend", self._path, error) from error
        self._reserved = end

    def flush(self) -> None:
        # fdatasync of the file covers its mapped pages and, unlike mmap.flush, lets other threads
        # run meanwhile.
        try:
            if not self._with_descriptor(os.fdatasync):
                self._map.flush()
        except OSError as error:
            raise storage_error("flush", self._path, error) from error

    def close(self) -> None:
        self.buffer.release()
        self._map.close()

    def _with_descriptor(self, act: Callable[[int], None]) -> bool:
        """Act on the mapped file.  Returns False if its name no longer leads to it."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            same = _identity(descriptor) == self.identity
            if same:
                act(descriptor)
            return same
        finally:
            os.close(descriptor)


def _check_within(path: str, offset: int, count: int, size: int) -> None:
    if offset < 0 or offset + count > size:
        raise StorageError(
            f"cannot replace {count} bytes at byte {offset} of {path}: it has {size}"
        )


def _identity(descriptor: int) -> FileIdentity:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
