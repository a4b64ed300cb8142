"""A simulated world: one control plane, brokers and clients, the real code, from one seed.

Owns: the loop, the network and the disks of one run, which processes live, and the trace.  Must not
know what clients do or what is checked.

    World(seed).run(main)   # ``async def main(world)``; awaits ``world.start()`` first

One seed decides everything: the order of processes, delays, partial sends, what a crash leaves.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar
from uuid import UUID

from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.storage_backends.blocking import replaced_runner
from sparklog.storage_backends.memory_disk import forget_disk
from tests.simulation.actors import Node, close_coroutines
from tests.simulation.blocking_work import VirtualRunner
from tests.simulation.bucket import Bucket
from tests.simulation.client_node import ClientNode, NodeClient
from tests.simulation.disk import HostDisk
from tests.simulation.faults import Faults
from tests.simulation.hosts import BrokerHost, ControlHost, Loss
from tests.simulation.loop import VirtualLoop, describe_unhandled
from tests.simulation.network import Network
from tests.simulation.trace_logs import captured_logs

T = TypeVar("T")

#: The time of day at which every world begins.
EPOCH_MS = 1_750_000_000_000
#: How far the clocks of hosts are off from the start, at most.
SKEW_MS_MAX = 200
DEFAULT_LIMIT_S = 1_800.0
#: What differs from the product's defaults: memory disks copy whole files when they crash.
SMALL = {"log.index.size.max.bytes": "65536"}


class Unhandled(Exception):
    """Exceptions that the code under test let fall on the floor."""


class World(Faults):
    """``settings`` are those of control plane and brokers, by Kafka's names.

    ``with_bucket``: there is a remote_dir, which all brokers share.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        bug: str | None = None,
        limit_s: float = DEFAULT_LIMIT_S,
        with_bucket: bool = False,
    ) -> None:
        self.seed = seed
        self.bug = bug
        self.settings = {**SMALL, **(settings or {})}
        self.random = self.stream("main")
        self.trace: list[str] = []
        #: Errors that a process logged and answered or closed a connection for, against all plans.
        self.unexpected: list[str] = []
        self.counters: Counter[str] = Counter()
        self.history: Any = None
        self.skews_ms: dict[str, int] = {}
        self.loop = VirtualLoop(self.stream("loop"), limit_s)
        self.network = Network(self.loop, self.stream("network"), self.note)
        self.loop.network = self.network
        self.control = ControlHost(self, self._disk("journal"))
        self.brokers = {
            broker_id: BrokerHost(self, broker_id, self._disk(f"broker-{broker_id}"))
            for broker_id in range(1, brokers + 1)
        }
        self._runner = VirtualRunner(self.loop, self.stream("work"))
        #: The store of remote segments.
        self.bucket: Bucket | None = None
        if with_bucket:
            self.bucket = Bucket(self, self._disk("bucket"), self.stream("bucket"))
            self.settings["remote.dir"] = self.bucket.url
        self._clients: dict[str, ClientNode] = {}
        self._incarnations: Counter[str] = Counter()
        self._skews = self.stream("clocks")

    # the run

    def run(self, main: "Callable[[World], Coroutine[Any, Any, T]]") -> T:
        """Run the loop until ``main`` returns; raises what it raised.

        A stall, virtual time beyond the limit, and an exception that nobody caught are errors.
        """
        collects = gc.isenabled()
        gc.disable()  # what is collected when is the seed's choice too
        try:
            with ExitStack() as stack:
                stack.enter_context(replaced_runner(self._runner))
                stack.enter_context(captured_logs(self))
                if self.bucket is not None:
                    stack.enter_context(self.bucket.connected())
                stack.callback(self._end)
                result = self.loop.run_until_complete(main(self))
                self.note(f"end after {self.loop.steps} steps")
                if self.loop.unhandled:
                    raise Unhandled("; ".join(describe_unhandled(self.loop.unhandled)))
                return result
        finally:
            if collects:
                gc.enable()

    def _end(self) -> None:
        for node in self.loop.nodes:
            self.loop.kill(node)
        self._runner.end()
        if self.bucket is not None:
            self.bucket.end()
            forget_disk(self.bucket.disk.name)
        close_coroutines(self.loop.nodes)
        self.loop.close()
        for disk in (self.control.disk, *(host.disk for host in self.brokers.values())):
            forget_disk(disk.name)

    def stream(self, name: str) -> random.Random:
        """A source of choices of its own: who draws from it disturbs nobody else's."""
        return random.Random(f"{self.seed}/{name}")

    def now_ms(self) -> int:
        """Virtual time since the world began."""
        return int(self.loop.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], bool], every_s: float = 0.01) -> None:
        """Let virtual time pass until something is true."""
        while not condition():
            await asyncio.sleep(every_s)

    def note(self, text: str) -> None:
        """Add to the trace."""
        self.trace.append(f"{self.loop.time():.6f} {text}")

    # processes

    async def start(self, *, later: Collection[int] = ()) -> None:
        """The control plane, then at once all brokers that are not for later; returns when they are
        registered."""
        await self.control.start()
        first = [host for broker_id, host in self.brokers.items() if broker_id not in later]
        starting = [host.launch() for host in first]
        for started in starting:
            await started

    async def start_control_plane(self) -> None:
        """A control plane on the journal; a former one that is still there (paused, say) loses its
        address, as to another process on another machine."""
        await self.control.start()

    async def kill_control_plane(self) -> None:
        self.control.kill()

    def pause_control_plane(self) -> None:
        self.control.pause()

    def resume_control_plane(self) -> None:
        """Every control plane that is paused goes on, one that was replaced too."""
        self.control.resume()

    async def start_broker(self, broker_id: int) -> None:
        """As a supervisor does it: again when it ends, until it is killed or stopped."""
        await self.brokers[broker_id].launch()

    async def kill_broker(self, broker_id: int, loss: Loss = Loss.NOTHING) -> None:
        """kill -9, or worse."""
        self.brokers[broker_id].kill(loss)

    def kill_broker_after(
        self, broker_id: int, operations: int, loss: Loss = Loss.NOTHING, *, kind: str = ""
    ) -> None:
        """Kill it inside its so many-th next operation on the disk, of one kind or of any."""
        host = self.brokers[broker_id]
        host.disk.kill_after(operations, lambda: host.kill(loss), kind=kind)

    async def stop_broker(self, broker_id: int) -> None:
        """A clean stop; returns when the process has ended."""
        await self.brokers[broker_id].stop()

    def pause_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].pause()

    def resume_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].resume()

    def is_up(self, broker_id: int) -> bool:
        """Whether the broker serves (it may be paused)."""
        return self.brokers[broker_id].is_up

    def broker_ended(self, node: Node, loss: Loss) -> None:
        """A broker's process has ended: see ``Bucket``."""
        if self.bucket is not None:
            self.bucket.broker_ended(node, power_lost=loss is not Loss.NOTHING)

    # clients

    def client(self, name: str) -> ClientNode:
        """The process ``client-<name>``, on a host of its own."""
        if name not in self._clients:
            self._clients[name] = ClientNode(self, self.new_node(f"client-{name}"))
        return self._clients[name]

    def kill_client(self, name: str) -> None:
        """The process is gone; ``client`` makes another one of that name."""
        node = self._clients.pop(name).node
        self.note(f"{node.name} is killed")
        self.counters["client_kills"] += 1
        self.loop.kill(node)
        self.network.end_process(node, silent=False)

    async def cluster_client(self, name: str, **options: Any) -> NodeClient:
        """A client of the cluster that runs as ``client-<name>``, whoever calls it."""
        return self.client(name).cluster_client(**options)

    @property
    def bootstrap(self) -> str:
        return self.control.endpoint

    # for the other files of the world

    def new_node(self, name: str, host: str = "") -> Node:
        self._incarnations[name] += 1
        return self.loop.add(Node(name, host))

    def runtime(self, node: Node) -> RuntimeEnvironment:
        """Clocks and randomness of one process."""
        source = self.stream(f"{node.name}#{self._incarnations[node.name]}")
        if node.host not in self.skews_ms:
            self.skews_ms[node.host] = self._skews.randint(-SKEW_MS_MAX, SKEW_MS_MAX)
        return RuntimeEnvironment(
            wall_ms=lambda: EPOCH_MS + self.skews_ms[node.host] + self.now_ms(),
            monotonic_ms=self.now_ms,
            new_id=lambda: UUID(bytes=source.randbytes(16), version=4),
            random_bytes=source.randbytes,
        )

    def _disk(self, name: str) -> HostDisk:
        return HostDisk(name, self.loop, self.stream(f"disk {name}"))
