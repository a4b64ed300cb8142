"""A memory disk: its tree, its faults, its locks, and the table of disks by name.

Owns: the steps of every operation (delay, lock, fault, space, work, fault).  Must not know paths.
Named disks exist until the process ends, or until ``forget_disk``.
"""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.storage_backends.base import storage_error
from sparklog.storage_backends.memory_faults import Faults, Operation
from sparklog.storage_backends.memory_nodes import FolderNode


class MemoryDisk:
    """One disk, shared by all backends that were opened on it, from any thread."""

    def __init__(self, name: str = "anonymous") -> None:
        self.name = name
        self.root = FolderNode()
        self.faults = Faults()
        #: The held locks, by the parts of the lock file's path.
        self.locks: dict[tuple[str, ...], object] = {}
        self.guard = threading.RLock()

    @contextmanager
    def operation(
        self, operation: Operation, where: str, *, writes: bool = False, grows: int = 0
    ) -> Iterator[None]:
        """The context of every operation: the disk's lock, and its faults before and after."""
        self.faults.delay(operation, where)
        with self.guard:
            self.faults.check_before(operation, where, writes=writes)
            if grows:
                self._check_space(where, grows)
            yield
            self.faults.check_after(operation, where)

    @property
    def used_bytes(self) -> int:
        return sum(file.allocated for file in self.root.files())

    def fill_after(self, more_bytes: int) -> None:
        """Make the disk full once this many further bytes are in use."""
        with self.guard:
            self.faults.capacity_bytes = self.used_bytes + more_bytes

    def space(self) -> tuple[int, int]:
        """The size of the disk and its free space, in bytes; -1 while there is no limit."""
        with self.guard:
            capacity = self.faults.capacity_bytes
            return (-1, -1) if capacity is None else (capacity, max(capacity - self.used_bytes, 0))

    def _check_space(self, where: str, grows: int) -> None:
        capacity = self.faults.capacity_bytes
        if capacity is not None and self.used_bytes + grows > capacity:
            raise storage_error("write to", where, OSError(errno.ENOSPC, "full"))


_disks: dict[str, MemoryDisk] = {}
_disks_guard = threading.Lock()


def named_disk(name: str) -> MemoryDisk:
    """The disk of this name in this process; a new one for a new name."""
    with _disks_guard:
        return _disks.setdefault(name, MemoryDisk(name))


def forget_disk(name: str) -> None:
    with _disks_guard:
        _disks.pop(name, None)
