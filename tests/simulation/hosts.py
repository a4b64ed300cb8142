"""The processes of the cluster, and who keeps them running.

Owns: the control plane's and each broker's host: starting the real objects as a process, kill,
pause, and the restarts that a supervisor or launcher would make.  Must not know the network's or
the disks' insides.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.executors.broker import Broker
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.supervisor.supervisor import FINAL_KINDS
from sparklog.runtime_environment import RuntimeEnvironment
from tests.simulation.actors import Node
from tests.simulation.disk import HostDisk
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network

CONTROL_PORT = 9090
BROKER_PORT = 9092
#: What the launcher takes to notice that the control plane has ended, and to start it again.
CONTROL_RESTART_S = 0.3
#: As ``SupervisorPayload``: pauses between restarts, and when to give up.
BACKOFF_S = 0.2
FAST_S = 10.0
FAST_FAILURES_MAX = 5


class Loss(Enum):
    """What goes with a process."""

    NOTHING = "is killed"
    #: What was not flushed: the power of its machine went, and nobody is told.
    UNFLUSHED = "loses power"
    #: Everything: its machine will come back with another disk.
    DISK = "loses its disk"


#: What each is counted as.
COUNTED_AS = {Loss.NOTHING: "kills", Loss.UNFLUSHED: "power_losses", Loss.DISK: "lost_disks"}


class Home(Protocol):
    """The world, as far as its processes need it."""

    loop: VirtualLoop
    network: Network
    settings: dict[str, str]
    counters: Any

    @property
    def control(self) -> "ControlHost": ...

    def note(self, text: str) -> None: ...

    def new_node(self, name: str, host: str = "") -> Node: ...

    def runtime(self, node: Node) -> RuntimeEnvironment: ...

    def broker_ended(self, node: Node, loss: Loss) -> None: ...


class Host:
    """A machine that runs one process at a time, mostly."""

    def __init__(self, world: Home, name: str, disk: HostDisk) -> None:
        self.name = name
        self.disk = disk
        self.node: Node | None = None
        self._world = world

    @property
    def is_up(self) -> bool:
        return self.node is not None

    def pause(self) -> None:
        node = self._running()
        self._world.note(f"{self.name} is paused")
        self._world.counters["pauses"] += 1
        self._world.loop.hold(node)

    def resume(self) -> None:
        node = self._running()
        self._world.note(f"{self.name} goes on")
        self._world.loop.release(node)

    def _running(self) -> Node:
        assert self.node is not None, f"{self.name} does not run"
        return self.node

    def _new_node(self) -> Node:
        self.node = self._world.new_node(self.name)
        self._world.network.power_on(self.name)
        return self.node

    def _end(self, node: Node, loss: Loss) -> None:
        """Whatever remains of a process goes away."""
        world = self._world
        world.loop.kill(node)
        world.network.end_process(node, silent=loss is not Loss.NOTHING)
        if self.node is node:
            self.node = None


class BrokerHost(Host):
    """One broker's machine, its disk and its supervisor."""

    def __init__(self, world: Home, broker_id: int, disk: HostDisk) -> None:
        super().__init__(world, f"broker-{broker_id}", disk)
        self.broker: Broker | None = None
        #: One that was killed, while its disk is as it left it.
        self.remains: Broker | None = None
        #: Of the process, where it has come so far as to have one.
        self.incarnation: UUID | None = None
        #: Entered around the end of every process.
        self.around_end: Callable[[Loss], AbstractContextManager[None]] = lambda _: nullcontext()
        self._broker_id = broker_id
        self._supervisor: asyncio.Task[None] | None = None
        self._new = True

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor keeps it up, or tries to."""
        return self._supervisor is not None and not self._supervisor.done()

    def launch(self) -> Awaitable[None]:
        """Supervise a broker; done when it serves, fails when the supervisor gives up."""
        assert not self.is_supervised, f"{self.name} runs"
        serves: asyncio.Future[None] = self._world.loop.create_future()
        self._supervisor = self._world.loop.create_task(self._supervise(serves))
        return serves

    def kill(self, loss: Loss = Loss.NOTHING) -> None:
        """kill -9 of broker and supervisor, or worse."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            self._supervisor = None
        self._world.note(f"{self.name} {loss.value}")
        self._world.counters[COUNTED_AS[loss]] += 1
        if self.node is not None:
            self._end(self.node, loss)
        else:
            with self.around_end(loss):
                self.remains = self.remains if loss is Loss.NOTHING else None
                self._end_on_disk(loss)

    async def stop(self) -> None:
        assert self.broker is not None, f"{self.name} does not serve"
        assert self._supervisor is not None
        self.broker.ask_to_stop("the world")
        await self._supervisor

    def _end(self, node: Node, loss: Loss) -> None:
        with self.around_end(loss):
            super()._end(node, loss)
            self._world.broker_ended(node, loss)
            if self.broker is not None or loss is not Loss.NOTHING:
                self.remains = self.broker if loss is Loss.NOTHING else None
            self.broker = self.incarnation = None
            self._end_on_disk(loss)

    def _end_on_disk(self, loss: Loss) -> None:
        if loss is Loss.UNFLUSHED:
            lost = self.disk.lose_power()
            self._world.note(f"{self.name} lost {lost} unflushed bytes")
            self._world.counters["unflushed_bytes_lost"] += lost
        elif loss is Loss.DISK:
            self.disk.wipe()
            self._new = True
        else:
            self.disk.end_process()

    async def _supervise(self, serves: "asyncio.Future[None]") -> None:
        loop, failures = self._world.loop, 0
        while True:
            began = loop.time()
            node = self._new_node()
            life = node.spawn(loop, self._live(node, serves))
            await asyncio.wait([life])  # which leaves it alone when this is cancelled
            error = _end_of(life)
            self._end(node, Loss.NOTHING)
            if error is None:
                self._world.note(f"{self.name} has stopped")
                return
            self._world.note(f"{self.name} ended: {error}")
            self._world.counters["broker_failures"] += 1
            failures = failures + 1 if loop.time() - began < FAST_S else 1
            if getattr(error, "kind", "") in FINAL_KINDS or failures >= FAST_FAILURES_MAX:
                if not serves.done():
                    serves.set_exception(error)
                self._world.note(f"{self.name} is given up")
                return
            await asyncio.sleep(min(5.0, BACKOFF_S * (2 ** (failures - 1) - 1)))

    async def _live(self, node: Node, serves: "asyncio.Future[None]") -> None:
        world = self._world
        broker = Broker(self._options(), world.runtime(node))
        self.incarnation = broker.incarnation
        await broker.start()
        self._new = False
        self.broker = broker
        world.note(f"{self.name} serves")
        world.counters["broker_starts"] += 1
        if not serves.done():
            serves.set_result(None)
        await broker.run()

    def _options(self) -> BrokerOptions:
        control = self._world.control
        return BrokerOptions(
            cluster_id=control.cluster_id,
            broker_id=self._broker_id,
            data_dir=self.disk.url,
            controller=control.endpoint,
            secret=control.secret.hex(),
            new=self._new,
            listen_host=self.name,
            port=BROKER_PORT,
            executor_host=self.name,
            executor_id=str(self._broker_id),
            job=f"job-{self._broker_id}",
            settings=self._world.settings,
        )


class ControlHost(Host):
    """The address of the control plane, the journal's disk, and the launcher that watches."""

    def __init__(self, world: Home, disk: HostDisk) -> None:
        super().__init__(world, "control", disk)
        self.endpoint = f"{self.name}:{CONTROL_PORT}"
        self.cluster_id = ""
        self.secret = b""
        self.control_plane: ControlPlane | None = None
        self._paused: list[Node] = []
        self._launcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start one, which replaces what is there; returns when it serves."""
        if self._launcher is not None:
            self._launcher.cancel()
        serves: asyncio.Future[None] = self._world.loop.create_future()
        self._launcher = self._world.loop.create_task(self._launch(serves))
        await serves

    def pause(self) -> None:
        super().pause()
        self._paused.append(self._running())

    def resume(self) -> None:
        paused, self._paused = self._paused, []
        for node in paused:
            if not node.dead:
                self._world.note(f"{self.name} goes on")
                self._world.loop.release(node)

    def kill(self) -> None:
        if self._launcher is not None:
            self._launcher.cancel()
        self._world.note(f"{self.name} is killed")
        self._world.counters["control_kills"] += 1
        if self.node is not None:
            self._end(self.node, Loss.NOTHING)

    def _end(self, node: Node, loss: Loss) -> None:
        self.control_plane = None if self.node is node else self.control_plane
        super()._end(node, loss)

    async def _launch(self, serves: "asyncio.Future[None]") -> None:
        world, failures = self._world, 0
        while failures < FAST_FAILURES_MAX:
            world.network.take_address(self.name)
            node = self._new_node()
            life = node.spawn(world.loop, self._live(node, serves))
            try:
                await asyncio.wait([life])
            except asyncio.CancelledError:  # another one is started beside it
                life.add_done_callback(partial(self._replaced_ended, node))
                raise
            error = _end_of(life)
            self._end(node, Loss.NOTHING)
            world.note(f"{self.name} ended: {error}")
            if error is None:
                return
            world.counters["control_failures"] += 1
            failures = 0 if serves.done() else failures + 1
            await asyncio.sleep(CONTROL_RESTART_S)
        assert error is not None
        serves.set_exception(error)

    def _replaced_ended(self, node: Node, ended: "asyncio.Task[None]") -> None:
        self._world.note(f"the replaced {self.name} ended: {_end_of(ended)}")
        self._world.counters["controllers_replaced"] += 1
        self._end(node, Loss.NOTHING)

    async def _live(self, node: Node, serves: "asyncio.Future[None]") -> None:
        world = self._world
        control_plane = ControlPlane(self._options(), world.runtime(node))
        await control_plane.start()
        self.cluster_id = control_plane.image.cluster_id
        self.secret = control_plane.secret
        if self.node is node:
            self.control_plane = control_plane
        world.note(f"{self.name} serves, epoch {control_plane.image.controller_epoch}")
        world.counters["control_starts"] += 1
        if not serves.done():
            serves.set_result(None)
        await control_plane.run()

    def _options(self) -> ControlPlaneOptions:
        return ControlPlaneOptions(
            journal_dir=self.disk.url,
            listen_host=self.name,
            port=CONTROL_PORT,
            settings=self._world.settings,
            checks_remote_dir=not self.cluster_id,  # as the launcher does
        )


def _end_of(life: "asyncio.Task[None]") -> BaseException | None:
    return None if life.cancelled() else life.exception()
