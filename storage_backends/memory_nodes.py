"""The tree of a memory disk: files and folders, and the effects of a crash on them.

Owns: a tree of nodes, each in two states: as written (``live``, ``data``) and as stored on the
platter (``durable``, ``flushed``).  Must not know paths, faults or handles.
"""

import itertools
from collections.abc import Callable, Iterator

#: (path, unflushed bytes) -> how many of these bytes have reached the platter anyway.
KeepUnflushed = Callable[[str, int], int]


#: The numbers of files, in the order of their creation.
_numbers = itertools.count()


class FileNode:
    """A file.  ``dirty_from`` is the first byte that may differ from ``flushed``."""

    __slots__ = ("allocated", "data", "dirty_from", "flushed", "identity", "lost", "maps")

    def __init__(self, data: bytes | bytearray | memoryview = b"") -> None:
        self.identity = 0, next(_numbers)
        self.data = bytearray(data)
        self.flushed = bytearray(data)
        self.dirty_from = len(self.data)
        #: Bytes with allocated disk space; a mapped file is larger than this.
        self.allocated = len(self.data)
        self.maps = 0
        #: Whether the process that had this file open has ended.
        self.lost = False

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data
        self.allocated = len(self.data)

    def overwrite(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Replace existing bytes."""
        self.data[position : position + len(data)] = data
        self.dirty_from = min(self.dirty_from, position)

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.dirty_from = min(self.dirty_from, size)
        self.allocated = min(self.allocated, size)

    def extend(self, size: int) -> None:
        """Make the file at least ``size`` bytes long, by zeros that take no space."""
        self.data += bytes(max(0, size - len(self.data)))

    def damage(self, position: int, mask: int) -> None:
        """Flip bits of one byte, also on the platter."""
        for held in (self.data, self.flushed):
            if position < len(held):
                held[position] ^= mask

    def flush(self) -> None:
        start = self._first_dirty()
        self.flushed[start:] = self.data[start:]
        self.dirty_from = len(self.data)

    def without_process(self) -> "FileNode":
        """The same file with its unflushed bytes, but without its handles and maps."""
        self.lost = True
        twin = FileNode()
        twin.data = bytearray(self.data) if self.maps else self.data
        twin.flushed = self.flushed
        twin.dirty_from = self._first_dirty()
        twin.allocated = self.allocated
        return twin

    def after_crash(self, path: str, keep: KeepUnflushed) -> "FileNode":
        """The file after a crash: the platter's bytes, and the unflushed prefix that survives."""
        self.lost = True
        start = self._first_dirty()
        torn_at = start + max(0, min(keep(path, len(self.data) - start), len(self.data) - start))
        return FileNode(self.data[:torn_at] + self.flushed[torn_at:])

    def _first_dirty(self) -> int:
        # Stores into a map leave no trace, so all bytes of a mapped file count as unflushed.
        return 0 if self.maps else self.dirty_from


class FolderNode:
    """A folder: its present names, and its names on the platter."""

    __slots__ = ("durable", "live")

    def __init__(self) -> None:
        self.live: dict[str, FileNode | FolderNode] = {}
        self.durable: dict[str, FileNode | FolderNode] = {}

    def flush(self) -> None:
        self.durable = dict(self.live)

    def flush_name(self, name: str) -> None:
        self.durable[name] = self.live[name]

    def files(self) -> list[FileNode]:
        """All files below this folder."""
        return [node for _, node in self.walk()]

    def walk(self, path: str = "") -> Iterator[tuple[str, FileNode]]:
        """All files below this folder with their paths, sorted by name."""
        for name, node in sorted(self.live.items()):
            below = f"{path}/{name}" if path else name
            if isinstance(node, FolderNode):
                yield from node.walk(below)
            else:
                yield below, node

    def end_process(self, twins: dict[FileNode, FileNode]) -> None:
        """Replace every file by its copy ``without_process``; ``twins`` has the copies so far."""
        for names in (self.live, self.durable):
            for name, node in names.items():
                if isinstance(node, FolderNode):
                    node.end_process(twins)
                    continue
                if node not in twins:
                    twin = twins[node] = node.without_process()
                    twins[twin] = twin
                names[name] = twins[node]

    def after_crash(self, path: str, keep: KeepUnflushed, lose_names: bool) -> "FolderNode":
        for file in self.files():
            file.lost = True
        rebuilt = FolderNode()
        for name, node in (self.durable if lose_names else self.live).items():
            below = f"{path}/{name}" if path else name
            if isinstance(node, FolderNode):
                rebuilt.live[name] = node.after_crash(below, keep, lose_names)
            else:
                rebuilt.live[name] = node.after_crash(below, keep)
        rebuilt.flush()
        return rebuilt
