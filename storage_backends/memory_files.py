"""Open files of a memory disk: handles, regions, maps, locks.

Owns: the same as ``local_files``, for a ``FileNode``.  Must not know any name except the file's
path.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from sparklog.errors import StorageError
from sparklog.storage_backends.base import Buffer, shrunk_error
from sparklog.storage_backends.memory_disk import MemoryDisk
from sparklog.storage_backends.memory_nodes import FileNode


class MemoryFile:
    """An open file (``FileHandle``)."""

    __slots__ = ("_disk", "_failed_flush", "_node", "_size", "identity", "path")

    def __init__(self, path: str, disk: MemoryDisk, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node: FileNode | None = node
        self.identity = node.identity
        self._size = len(node.data)
        self._failed_flush = False

    def size(self) -> int:
        self._open()
        return self._size

    def writev(self, buffers: Sequence[Buffer]) -> int:
        node = self._writable()
        data = b"".join(buffers)
        with self._disk.operation("writev", self.path, writes=True, grows=len(data)):
            self._check_unmapped(node)
            if len(node.data) < self._size:
                raise shrunk_error(self.path, len(node.data), self._size)
            node.append(data)
            self._size = len(node.data)
        return len(data)

    def read(self, offset: int, size: int) -> bytes:
        node = self._open()
        with self._disk.operation("read", self.path):
            return bytes(node.data[offset : offset + max(0, size)])

    def region(self, offset: int, size: int) -> "MemoryRegion":
        node = self._open()
        with self._disk.operation("region", self.path):
            if len(node.data) < self._size:
                raise shrunk_error(self.path, len(node.data), self._size)
            return MemoryRegion(self.path, bytes(node.data[offset : offset + max(0, size)]))

    def overwrite(self, offset: int, data: Buffer) -> None:
        node = self._writable()
        with self._disk.operation("overwrite", self.path, writes=True):
            if offset < 0 or offset + len(data) > len(node.data):
                raise StorageError(
                    f"cannot replace {len(data)} bytes at byte {offset} of {self.path}: "
                    f"it has {len(node.data)}"
                )
            node.overwrite(offset, data)

    def truncate(self, size: int) -> None:
        node = self._writable()
        with self._disk.operation("truncate", self.path, writes=True):
            self._check_unmapped(node)
            if len(node.data) < self._size:
                raise shrunk_error(self.path, len(node.data), self._size)
            if not 0 <= size <= len(node.data):
                raise StorageError(
                    f"cannot cut {self.path} to {size} bytes: it has {len(node.data)}"
                )
            node.cut(size)
            self._size = size

    def flush(self) -> None:
        node = self._writable()
        try:
            with self._disk.operation("flush", self.path, writes=True):
                node.flush()
        except StorageError:
            self._failed_flush = True
            raise

    def map(self, size: int) -> "MemoryMap":
        node = self._writable()
        assert size > 0, f"an empty map of {self.path}"
        with self._disk.operation("map", self.path, writes=True):
            if len(node.data) < size:
                self._check_unmapped(node)
                node.extend(size)
                self._size = size
            return MemoryMap(self.path, self._disk, node, size)

    def close(self) -> None:
        self._node = None

    def _open(self) -> FileNode:
        node = self._node
        if node is None:
            raise StorageError(f"{self.path} was closed; open it again")
        _check_not_lost(self.path, node)
        return node

    def _writable(self) -> FileNode:
        if self._failed_flush:
            raise StorageError(
                f"{self.path} could not be flushed before, so its last bytes may be lost; "
                "check the disk, then open and recover it again"
            )
        return self._open()

    def _check_unmapped(self, node: FileNode) -> None:
        assert not node.maps, f"{self.path} is mapped"


class MemoryRegion:
    """A copy of a range (``Region``), so that the file's length may still change."""

    __slots__ = ("_data", "_path", "size")

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data: bytes | None = data
        self.size = len(data)

    def descriptor(self) -> None:
        return None

    def view(self) -> memoryview:
        return memoryview(self.read())

    def read(self) -> bytes:
        assert self._data is not None, f"region of {self._path} was released"
        return self._data

    def release(self) -> None:
        self._data = None


class MemoryMap:
    """The file's own bytes (``Map``); the file's length must not change while it is mapped."""

    __slots__ = ("_closed", "_disk", "_node", "_path", "_size", "buffer", "identity")

    def __init__(self, path: str, disk: MemoryDisk, node: FileNode, size: int) -> None:
        self._path = path
        self._disk = disk
        self._node = node
        self.identity = node.identity
        self._size = size
        self._closed = False
        self.buffer = memoryview(node.data)[:size]
        node.maps += 1

    def reserve(self, end: int) -> None:
        _check_not_lost(self._path, self._node)
        assert end <= self._size, f"{end} is behind the end of the map of {self._path}"
        grows = max(0, end - self._node.allocated)
        with self._disk.operation("reserve", self._path, writes=True, grows=grows):
            self._node.allocated += grows

    def flush(self) -> None:
        _check_not_lost(self._path, self._node)
        with self._disk.operation("flush", self._path, writes=True):
            self._node.flush()

    def close(self) -> None:
        self.buffer.release()
        if not self._closed:
            self._closed = True
            self._node.maps -= 1
            self._node.dirty_from = 0


class MemoryLock:
    """A lock in the disk's table of locks (``Lock``)."""

    __slots__ = ("_disk", "_key")

    def __init__(self, disk: MemoryDisk, key: tuple[str, ...]) -> None:
        self._disk = disk
        self._key = key
        disk.locks[key] = self

    def release(self) -> None:
        with self._disk.guard:
            # After a crash the table may have the lock of a later owner.
            if self._disk.locks.get(self._key) is self:
                del self._disk.locks[self._key]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _check_not_lost(path: str, node: FileNode) -> None:
    if node.lost:
        raise StorageError(f"{path} was open when its disk crashed; open it again")
