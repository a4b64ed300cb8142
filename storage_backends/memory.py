"""Files in memory: ``memory://NAME``, with switches for everything that can go wrong.

Owns: the contract on a ``MemoryDisk``, and the effects of a crash.  Must not know what the files
mean.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sparklog.errors import StorageError
from sparklog.storage_backends.base import (
    Buffer,
    FileHalf,
    FileStatus,
    MissingPathError,
    file_parts,
    locked_error,
    path_parts,
)
from sparklog.storage_backends.memory_disk import MemoryDisk, named_disk
from sparklog.storage_backends.memory_faults import Faults
from sparklog.storage_backends.memory_files import MemoryFile, MemoryLock
from sparklog.storage_backends.memory_nodes import FileNode, FolderNode, KeepUnflushed


def open_url(url: str, _options: Mapping[str, Any]) -> "MemoryBackend":
    """``memory://NAME`` or ``memory://NAME/folder``; options are ignored."""
    parts = urlsplit(url)
    if not parts.netloc:
        raise StorageError(f"{url!r} names no memory disk; write memory://NAME")
    return MemoryBackend(named_disk(parts.netloc), parts.path.strip("/"))


class MemoryBackend(FileHalf):
    """A folder of a memory disk; without arguments the root of a new disk."""

    atomic_put_if_absent = True

    def __init__(self, disk: MemoryDisk | None = None, root: str = "") -> None:
        self.disk = disk or MemoryDisk()
        self.root = path_parts(root)
        self.url = "/".join((f"memory://{self.disk.name}", *self.root))

    def __repr__(self) -> str:
        return f"MemoryBackend({self.url!r})"

    @property
    def faults(self) -> Faults:
        return self.disk.faults

    def crash(self, keep_unflushed: int | KeepUnflushed = 0, *, lose_names: bool = False) -> None:
        """Simulate a loss of power: bytes that were not flushed below this root are lost.

        Open handles fail from now on, and locks are released.

        Args:
            keep_unflushed: how many unflushed bytes of each file survive as a torn prefix, or a
                function that returns that number.
            lose_names: undo the creation, renaming and deletion of files and folders since the last
                flush of their folder (or of the file itself).
        """
        keep = keep_unflushed if callable(keep_unflushed) else lambda path, size: keep_unflushed
        with self.disk.guard:
            self._forget_locks()
            top = self._find_folder(self.root)
            if top is None:
                return
            rebuilt = top.after_crash("", keep, lose_names)
            top.live, top.durable = rebuilt.live, rebuilt.durable

    def files(self, suffix: str = "") -> list[tuple[str, FileNode]]:
        """The paths and nodes of files with this suffix, for tests that damage them."""
        top = self._find_folder(self.root)
        return [(path, node) for path, node in (top.walk() if top else ()) if path.endswith(suffix)]

    def end_process(self) -> None:
        """Simulate the end of the process that uses this folder.

        Its handles fail and its locks are released.  No bytes are lost, and none become durable.
        """
        with self.disk.guard:
            self._forget_locks()
            top = self._find_folder(self.root)
            if top is not None:
                top.end_process({})

    def append(self, path: str, data: Buffer) -> None:
        parts, where = self._place(path)
        with self.disk.operation("append", where, writes=True, grows=len(data)):
            node = self._find(parts)
            if node is None:
                node = FileNode()
                self._make_folders(parts[:-1], where).live[parts[-1]] = node
            _file(node, where).append(data)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        parts, where = self._place(path)
        with self.disk.operation("read", where):
            data = self._require_file(parts, where).data
            return bytes(data[offset : len(data) if size is None else offset + max(0, size)])

    def size(self, path: str) -> int:
        parts, where = self._place(path)
        with self.disk.operation("size", where):
            return len(self._require_file(parts, where).data)

    def exists(self, path: str) -> bool:
        parts, where = self._folder_place(path)
        with self.disk.operation("exists", where):
            return self._find(parts) is not None

    def list(self, folder: str) -> list[str]:
        parts, where = self._folder_place(folder)
        with self.disk.operation("list", where):
            found = self._find_folder(parts)
            return sorted(found.live) if found else []

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        parts, where = self._place(path)
        with self.disk.operation("put_if_absent", where, writes=True, grows=len(data)):
            if self._find(parts) is not None:
                self._require_folder(parts[:-1], where).flush_name(parts[-1])
                return False
            self._put(parts, where, data)
            return True

    def put(self, path: str, data: Buffer) -> None:
        parts, where = self._place(path)
        with self.disk.operation("put", where, writes=True, grows=len(data)):
            self._put(parts, where, data)

    def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
        parts, where = self._place(path)
        data = bytearray()
        for chunk in chunks:
            data += chunk
        with self.disk.operation("upload", where, writes=True, grows=len(data)):
            self._put(parts, where, data)
        return len(data)

    def rename(self, source: str, target: str) -> None:
        parts, where = self._place(source)
        new_parts, new_where = self._place(target)
        with self.disk.operation("rename", where, writes=True):
            node = self._require_file(parts, where)
            if isinstance(self._find(new_parts), FolderNode):
                raise _not_a_file(new_where)
            folder = self._require_folder(new_parts[:-1], new_where)
            del self._require_folder(parts[:-1], where).live[parts[-1]]
            folder.live[new_parts[-1]] = node

    def delete(self, path: str) -> None:
        parts, where = self._place(path)
        with self.disk.operation("delete", where, writes=True):
            node = self._find(parts)
            if node is not None:
                _file(node, where)
                del self._require_folder(parts[:-1], where).live[parts[-1]]

    def truncate(self, path: str, size: int) -> None:
        self.open(path).truncate(size)

    def flush(self, path: str) -> None:
        parts, where = self._place(path)
        with self.disk.operation("flush", where, writes=True):
            self._require_file(parts, where).flush()
            self._require_folder(parts[:-1], where).flush_name(parts[-1])

    def open(self, path: str, create: bool = False) -> MemoryFile:
        parts, where = self._place(path)
        with self.disk.operation("open", where, writes=create):
            node = self._find(parts)
            if node is None and create:
                node = FileNode()
                self._require_folder(parts[:-1], where).live[parts[-1]] = node
            return MemoryFile(where, self.disk, _file(node, where))

    def make_folder(self, path: str) -> None:
        parts, where = self._folder_place(path)
        with self.disk.operation("make_folder", where, writes=True):
            self._make_folders(parts, where)

    def remove_folder(self, path: str) -> None:
        parts, where = self._folder_place(path)
        with self.disk.operation("remove_folder", where, writes=True):
            node = self._find(parts)
            if isinstance(node, FileNode):
                raise _not_a_folder(where)
            if not parts:
                self.disk.root.live.clear()
            elif node is not None:
                del self._require_folder(parts[:-1], where).live[parts[-1]]

    def rename_folder(self, source: str, target: str) -> None:
        parts, where = self._folder_place(source)
        new_parts, new_where = self._folder_place(target)
        with self.disk.operation("rename_folder", where, writes=True):
            node = self._require_folder(parts, where)
            if self._find(new_parts) is not None:
                raise StorageError(f"cannot rename {where} to {new_where}: the name is taken")
            folder = self._require_folder(new_parts[:-1], new_where)
            del self._require_folder(parts[:-1], where).live[parts[-1]]
            folder.live[new_parts[-1]] = node

    def space(self) -> tuple[int, int]:
        return self.disk.space()

    def is_folder(self, path: str) -> bool:
        parts, where = self._folder_place(path)
        with self.disk.operation("exists", where):
            return self._find_folder(parts) is not None

    def look(self, path: str) -> FileStatus | None:
        parts, where = self._folder_place(path)
        with self.disk.operation("size", where):
            node = self._find(parts)
            return FileStatus(node.identity, len(node.data)) if isinstance(node, FileNode) else None

    def flush_folder(self, path: str) -> None:
        parts, where = self._folder_place(path)
        with self.disk.operation("flush_folder", where, writes=True):
            self._require_folder(parts, where).flush()

    def lock(self, path: str) -> MemoryLock:
        parts, where = self._place(path)
        with self.disk.operation("lock", where, writes=True):
            self._require_folder(parts[:-1], where).live.setdefault(parts[-1], FileNode())
            if parts in self.disk.locks:
                raise locked_error(where.rpartition("/")[0], str(os.getpid()))
            return MemoryLock(self.disk, parts)

    def _place(self, path: str) -> tuple[tuple[str, ...], str]:
        """The parts of a file's path from the disk's root, and the file's name in messages."""
        return self._named(file_parts(path))

    def _folder_place(self, path: str) -> tuple[tuple[str, ...], str]:
        return self._named(path_parts(path))

    def _named(self, parts: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        return self.root + parts, "/".join((self.url, *parts))

    def _find(self, parts: Sequence[str]) -> FileNode | FolderNode | None:
        node: FileNode | FolderNode | None = self.disk.root
        for part in parts:
            node = node.live.get(part) if isinstance(node, FolderNode) else None
        return node

    def _find_folder(self, parts: Sequence[str]) -> FolderNode | None:
        node = self._find(parts)
        return node if isinstance(node, FolderNode) else None

    def _require_file(self, parts: Sequence[str], where: str) -> FileNode:
        return _file(self._find(parts), where)

    def _require_folder(self, parts: Sequence[str], where: str) -> FolderNode:
        node = self._find(parts)
        if node is None:
            raise _missing(where)
        if isinstance(node, FileNode):
            raise _not_a_folder(where)
        return node

    def _put(self, parts: Sequence[str], where: str, data: Buffer) -> None:
        if isinstance(self._find(parts), FolderNode):
            raise _not_a_file(where)
        folder = self._make_folders(parts[:-1], where)
        folder.live[parts[-1]] = FileNode(data)
        folder.flush_name(parts[-1])

    def _make_folders(self, parts: Sequence[str], where: str) -> FolderNode:
        folder = self.disk.root
        for part in parts:
            below = folder.live.setdefault(part, FolderNode())
            if isinstance(below, FileNode):
                raise _not_a_folder(where)
            folder.flush_name(part)
            folder = below
        return folder

    def _forget_locks(self) -> None:
        depth = len(self.root)
        for parts in [parts for parts in self.disk.locks if parts[:depth] == self.root]:
            del self.disk.locks[parts]


def _file(node: FileNode | FolderNode | None, where: str) -> FileNode:
    if node is None:
        raise _missing(where)
    if isinstance(node, FolderNode):
        raise _not_a_file(where)
    return node


def _missing(where: str) -> MissingPathError:
    return MissingPathError(f"cannot find {where}: it does not exist; check the path")


def _not_a_file(where: str) -> StorageError:
    return StorageError(f"cannot use {where}: it is a folder, not a file; choose another path")


def _not_a_folder(where: str) -> StorageError:
    return StorageError(
        f"cannot use {where}: a part of the path is a file, not a folder; choose another path"
    )
