"""Open local files: gathered writes, regions, maps.

Owns: file descriptors and their lifetime.  Must not know names beyond the one file's path.

A descriptor is shared by a handle and the regions taken from it and is closed when the last of
them lets go; work in another thread holds it by a plain reference, so it is never closed, and its
number never reused, under a running flush.
"""

import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from sparklog.errors import StorageError
from sparklog.storage_backends.base import Buffer, storage_error

FILE_MODE = 0o600
_IOV_MAX = os.sysconf("SC_IOV_MAX")
#: Maps get disk space in steps of this many bytes.
_RESERVE_STEP_BYTES = 16 * 1024
#: Written with one call.  The page cache of a larger write comes in larger blocks of memory, and
#: those are what a virtual machine gives back to its host when they are free: getting them again
#: took 25 us per 16 KB where this takes 4.5.
_STEP_BYTES = 64 * 1024
#: What a map is told about how it is read; None where the system takes no advice.
_RANDOM: int | None = getattr(mmap, "MADV_RANDOM", None)


class Descriptor:
    """A file descriptor that is closed when nobody refers to this object any more."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


class LocalFile:
    """An open file (``FileHandle``).

    Writes go to the remembered end, not to the file's, so that the rest of a failed write that
    could not be cut off is written over.
    """

    __slots__ = ("_descriptor", "_failed_flush", "_size", "_tail_to_cut", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: Descriptor | None = Descriptor(descriptor)
        self._size = os.fstat(descriptor).st_size
        self._tail_to_cut = False
        self._failed_flush = False

    def size(self) -> int:
        return self._size

    def writev(self, buffers: Sequence[Buffer]) -> int:
        descriptor = self._writable()
        try:
            if self._tail_to_cut:
                self._cut(descriptor.number, self._size)
            written = write_at(descriptor.number, buffers, self._size)
        except OSError as error:
            self._cut_tail(descriptor.number)
            raise storage_error("write to", self.path, error) from error
        self._size += written
        return written

    def read(self, offset: int, size: int) -> bytes:
        descriptor = self._open()
        try:
            return read_at(descriptor.number, offset, min(size, self._size - offset))
        except OSError as error:
            raise storage_error("read", self.path, error) from error

    def region(self, offset: int, size: int) -> "LocalRegion":
        clipped = max(0, min(size, self._size - offset))
        return LocalRegion(self.path, self._open(), offset, clipped)

    def truncate(self, size: int) -> None:
        descriptor = self._writable()
        if not 0 <= size <= self._size:
            raise StorageError(f"cannot cut {self.path} to {size} bytes: it has {self._size}")
        try:
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

    def _cut(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)
        self._size = size
        self._tail_to_cut = False

    def _cut_tail(self, descriptor: int) -> None:
        self._tail_to_cut = True
        try:
            self._cut(descriptor, self._size)
        except OSError:
            # Stays marked: the next write tries again first.  The write's own error is told.
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

    It keeps no descriptor besides the one that ``mmap`` keeps for itself and hides; what needs one
    opens the file by its name and checks that this is still the same file.
    """

    __slots__ = ("_identity", "_map", "_path", "_reserved", "_size", "buffer")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        assert size > 0, f"an empty map of {path}"
        self._path = path
        self._size = size
        self._reserved = 0
        self._identity = _identity(descriptor)
        self._map = mmap.mmap(descriptor, size)
        if _RANDOM is not None:
            # Else the first store into an empty map brings in megabytes of zeros around it: 2.7 ms
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
        """Act on the mapped file; False when its name no longer leads to it (renamed, deleted)."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            same = _identity(descriptor) == self._identity
            if same:
                act(descriptor)
            return same
        finally:
            os.close(descriptor)


def write_at(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers at ``position``; returns their size.  On OSError any prefix is there."""
    total = sum(map(len, buffers))
    written = 0
    for group in _groups(buffers) if total > _STEP_BYTES else (buffers,):
        size = sum(map(len, group))
        step = (
            os.pwritev(descriptor, group, position + written) if 0 < len(group) <= _IOV_MAX else 0
        )
        if step < size:
            _write_rest(descriptor, group, position + written, step, size)
        written += size
    return total


def _groups(buffers: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The buffers by groups of at most ``_STEP_BYTES``; larger ones are cut."""
    group: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) <= _STEP_BYTES:
            group.append(buffer)
            size += len(buffer)
            continue
        if group:
            yield group
        view = memoryview(buffer)
        while len(view) > _STEP_BYTES:
            yield [view[:_STEP_BYTES]]
            view = view[_STEP_BYTES:]
        group, size = [view], len(view)
    if group:
        yield group


def _write_rest(
    descriptor: int, buffers: Sequence[Buffer], position: int, written: int, total: int
) -> None:
    """Finish a short write; each round makes progress or raises."""
    rest = [memoryview(buffer) for buffer in buffers]
    rest.reverse()
    _drop(rest, written)
    while written < total:
        step = os.pwritev(descriptor, list(islice(reversed(rest), _IOV_MAX)), position + written)
        if not step:
            raise OSError(errno.EIO, "a write made no progress")
        _drop(rest, step)
        written += step


def _drop(rest: list[memoryview], size: int) -> None:
    """Take ``size`` bytes off the front (the list is reversed), and empty buffers with them."""
    while rest and size >= len(rest[-1]):
        size -= len(rest.pop())
    if size:
        rest[-1] = rest[-1][size:]


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Up to ``size`` bytes; fewer only at the end of the file."""
    if size <= 0:
        return b""
    data = os.pread(descriptor, size, offset)
    if not data or len(data) == size:
        return data
    parts = [data]
    size -= len(data)
    while size > 0:
        offset += len(data)
        data = os.pread(descriptor, size, offset)
        if not data:
            break
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
