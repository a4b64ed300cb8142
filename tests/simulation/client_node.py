"""Client processes of a simulated world.

Owns: a process for a client, and a cluster client that stays in it whoever calls.  Must not know
what clients do.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.types import Endpoint
from tests.simulation.actors import NODE, Killed, Node
from tests.simulation.loop import VirtualLoop

T = TypeVar("T")


class Home(Protocol):
    """The world, as far as clients need it."""

    loop: VirtualLoop

    @property
    def bootstrap(self) -> str: ...

    def runtime(self, node: Node) -> RuntimeEnvironment: ...

    def note(self, text: str) -> None: ...


class ClientNode:
    """One client process."""

    def __init__(self, world: Home, node: Node) -> None:
        self.node = node
        self.name = node.name
        self._world = world

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as this process; a task that never ends once the process is killed."""
        return self.node.spawn(self._world.loop, coroutine)

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as this process and wait for it."""
        return await self.start(coroutine)

    def cluster_client(self, **options: Any) -> "NodeClient":
        around = self._world.runtime(self.node)
        return NodeClient(
            self.node, self._world.bootstrap, client_id=self.name, runtime=around, **options
        )


class NodeClient(ClusterClient):
    """A cluster client whose connections belong to one process."""

    def __init__(self, node: Node, bootstrap: str, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._node = node

    async def connect(self, endpoint: Endpoint, deadline: Deadline, lane: str = "") -> Connection:
        if self._node.dead:
            raise Killed
        token = NODE.set(self._node)
        try:
            return await super().connect(endpoint, deadline, lane)
        finally:
            NODE.reset(token)
