"""A simulated bucket: the store of remote segments that all brokers of a world share.

Owns: its disk, the helper process of each broker that talks to it, and who sees what happens in it.
Must not know what its objects mean.

The bucket survives every broker.  A helper may outlive its broker for a while: what it has begun
still takes effect then, as a request that was on its way when its sender died.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from sparklog.storage_backends.memory_disk import MemoryDisk
from sparklog.storage_backends.memory_faults import Operation
from tests.simulation.actors import Node, current_node
from tests.simulation.blocking_work import VirtualRunner
from tests.simulation.disk import HostDisk
from tests.simulation.remote_helpers import HelperCalls, HelperHome

#: The folder of the remote logs.
FOLDER = "log"
#: Seconds that a helper outlives its broker, at most, and how often it does.
OUTLIVES_S = 8.0
OUTLIVES_SHARE = 0.5
#: Operations whose effects are told.
_TOLD = frozenset({"put_if_absent", "put", "upload", "delete"})

#: Told (operation, path) when an operation has had its effect.
Watch = Callable[[str, str], None]


class Bucket:
    """``watch`` is called after each change of the bucket."""

    def __init__(self, world: HelperHome, disk: HostDisk, chance: random.Random) -> None:
        self.disk = disk
        self.watch: Watch = lambda operation, path: None
        self.url = f"{disk.url}/{FOLDER}"
        self._world = world
        self._chance = chance
        self._runner = VirtualRunner(world.loop, chance, sliced_one_in=1)
        self._calls: dict[Node, HelperCalls] = {}
        memory = disk.backend.disk
        memory.operation = self._operation  # type: ignore[method-assign]

    def connected(self) -> AbstractContextManager[Any]:
        """Meanwhile brokers reach the bucket through helpers."""
        return patch("sparklog.executors.tiering.open_remote_logs", self._open)

    def end(self) -> None:
        """At the end of the world: unwind the work of helpers, all of which are dead."""
        self._runner.end()

    def objects(self) -> Mapping[str, bytes]:
        """The contents of all objects by path, without any operation."""
        prefix = f"{FOLDER}/"
        return {
            path.removeprefix(prefix): bytes(node.data)
            for path, node in self.disk.backend.files()
            if path.startswith(prefix)
        }

    def content(self, path: str) -> bytes | None:
        """Of one object, without any operation; None: there is none."""
        node: Any = self.disk.backend.disk.root
        for part in (FOLDER, *path.split("/")):
            node = node.live.get(part) if hasattr(node, "live") else None
        return bytes(node.data) if hasattr(node, "data") else None

    # helpers

    def helpers(self) -> list[HelperCalls]:
        """Those of brokers that live."""
        return [calls for calls in self._calls.values() if not calls.closed]

    def broker_ended(self, node: Node, *, power_lost: bool) -> None:
        """The helper of a process that has ended goes too, at once or some time later."""
        calls = self._calls.pop(node, None)
        if calls is not None:
            outlives = not power_lost and self._chance.random() < OUTLIVES_SHARE
            calls.end(self._chance.random() * OUTLIVES_S if outlives else 0.0)

    def _open(self, remote_dir: str, *, cluster_id: str, **_: Any) -> HelperCalls:
        node = current_node()
        assert node is not None
        calls = HelperCalls(
            self._world, node, self._runner, self._chance, remote_dir, cluster_id=cluster_id
        )
        self._calls[node] = calls
        return calls

    # what happens in it

    @contextmanager
    def _operation(
        self, operation: Operation, where: str, *, writes: bool = False, grows: int = 0
    ) -> Iterator[None]:
        memory = self.disk.backend.disk
        path = where.removeprefix(f"{self.url}/")
        with MemoryDisk.operation(memory, operation, where, writes=writes, grows=grows):
            before = self.content(path) if operation in _TOLD else None
            yield
            if operation in _TOLD and self.content(path) != before:
                self.watch(operation, path)
