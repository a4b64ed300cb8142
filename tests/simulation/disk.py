"""Simulated disks: what a process meets in them, and what is left of them afterwards.

Owns: one memory disk per host, its faults, and the moment of a kill inside an operation.  Must not
know what files mean.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from tests.simulation.actors import Killed, current_node
from tests.simulation.fibers import FIBER
from tests.simulation.loop import VirtualLoop

#: Work that is done in slices stands still before an operation with this chance.
SLICE_CHANCE = 0.3


@dataclass(slots=True)
class _Kill:
    left: int
    kill: Callable[[], None]
    kind: str


class HostDisk:
    """The disk of one host; it survives the processes that use it."""

    def __init__(self, name: str, loop: VirtualLoop, random: random.Random) -> None:
        forget_disk(name)
        self.name = name
        self.url = f"memory://{name}"
        self.backend = MemoryBackend(named_disk(name))
        self.faults = self.backend.disk.faults
        self.operations = 0
        self.slow_s = 0.0
        self._loop = loop
        self._random = random
        self._kill: _Kill | None = None
        self.faults.slow = self._before

    def heal(self) -> None:
        self.faults.clear()
        self.faults.slow = self._before
        self.slow_s = 0.0

    def fill(self, more_bytes: int = 0) -> None:
        """Full, once so many more bytes are used."""
        self.backend.disk.fill_after(more_bytes)

    def corrupt(self, suffix: str) -> tuple[str, int] | None:
        """Change one byte of one of the files whose names end so, as a dying disk does."""
        found = [(path, node) for path, node in self.backend.files(suffix) if node.data]
        if not found:
            return None
        path, node = self._random.choice(found)
        position = self._random.randrange(len(node.data))
        node.damage(position, self._random.randint(1, 255))
        return path, position

    def kill_after(self, operations: int, kill: Callable[[], None], *, kind: str = "") -> None:
        """Have ``kill`` called inside the process, before its so many-th next operation, of one
        kind (``flush``, say) or of any."""
        self._kill = _Kill(operations, kill, kind)

    def end_process(self) -> None:
        self._kill = None
        self.backend.end_process()

    def lose_power(self) -> int:
        """Of every file's unflushed bytes a seeded prefix survives; names only if they were
        flushed, or luck had it.  Returns the bytes that were lost."""
        lost = 0

        def keep(_path: str, size: int) -> int:
            nonlocal lost
            kept = self._random.choice((0, size, self._random.randint(0, size)))
            lost += size - kept
            return kept

        self._kill = None
        self.backend.crash(keep, lose_names=self._random.random() < 0.5)
        return lost

    def wipe(self) -> None:
        """Another disk is there in its place, an empty one."""
        self._kill = None
        self.backend.end_process()
        root = self.backend.disk.root
        root.live, root.durable = {}, {}

    def _before(self, operation: str, _where: str) -> None:
        node = current_node()
        if node is None:
            return
        if node.dead:
            raise Killed
        self.operations += 1
        plan = self._kill
        if plan is not None and plan.kind in ("", operation):
            plan.left -= 1
            if plan.left <= 0:
                plan.kill()
                raise Killed
        fiber = FIBER.get()
        if fiber is not None:
            fiber.owed_s += self.slow_s * self._random.random() * 2
            if fiber.sliced and (fiber.owed_s or self._random.random() < SLICE_CHANCE):
                fiber.park()
                if node.dead:
                    raise Killed
        elif self.slow_s:
            self._loop.hold_for(node, self.slow_s * self._random.random() * 2)
