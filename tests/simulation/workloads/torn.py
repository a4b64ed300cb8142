"""What a power loss leaves of bytes that were on their way: fewer of them, and wrong ones.

Owns: which bytes may be wrong.  Must not know what they mean.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.storage_backends.memory_disk import MemoryDisk
from sparklog.storage_backends.memory_nodes import FileNode, FolderNode


@contextmanager
def garble_unflushed(disk: MemoryDisk, chance: random.Random) -> Iterator[None]:
    """Of what survives the loss of power without having been flushed, some is not what it was."""
    flushed = {path: len(file.flushed) for path, file in _files(disk.root, "")}
    yield
    for path, file in _files(disk.root, ""):
        start, end = flushed.get(path, len(file.data)), len(file.data)
        if start >= end or chance.random() < 0.5:
            continue
        at = chance.randrange(start, end)
        stop = min(end, at + chance.choice((1, 16, 512)))
        for place in range(at, stop):
            file.data[place] ^= chance.randrange(256)
        file.flushed[at:stop] = file.data[at:stop]


def _files(folder: FolderNode, path: str) -> Iterator[tuple[str, FileNode]]:
    for name, node in folder.live.items():
        below = f"{path}/{name}"
        if isinstance(node, FolderNode):
            yield from _files(node, below)
        else:
            yield below, node
