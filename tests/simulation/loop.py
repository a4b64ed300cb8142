"""An asyncio event loop with virtual time, on which many processes live.

Owns: time, the order of callbacks, and which process's callbacks may run.  Must not know what they
do.  It waits for nothing: when no callback is ready, time jumps to the next timer.

Callbacks of one process keep asyncio's order; which process goes on next is the seed's choice.
"""

import asyncio
import heapq
import random
import socket
from collections.abc import Callable, Sequence
from contextvars import Context
from itertools import count
from typing import Any, Protocol

from tests.simulation.actors import NODE, Killed, Node, waiting_places

#: Callbacks at one moment of virtual time, beyond which time is taken to stand still.
STEPS_AT_ONCE_MAX = 1_000_000


class Stalled(Exception):
    """Nothing is ready and nothing is scheduled, or virtual time is up, and main has not ended."""


class Sockets(Protocol):
    """What stands behind ``create_server`` and ``create_connection``."""

    async def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any: ...

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any: ...


class VirtualLoop(asyncio.BaseEventLoop):
    """``random``: the order of processes.  ``limit_s``: virtual time at which a run has failed."""

    network: Sockets

    def __init__(self, random: random.Random, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.steps = 0
        #: Who runs when nobody else is said to: the test.
        self.outside = Node("world")
        self.nodes: list[Node] = [self.outside]
        #: Contexts of exceptions that nobody caught.
        self.unhandled: list[dict[str, Any]] = []
        self._choose = random.random
        self._now = 0.0
        self._steps_before = 0
        self._numbers = count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._runnable: list[Node] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._record)

    # asyncio's side

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise AssertionError(f"{func} would leave the simulation; use run_blocking")

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:  # type: ignore[override]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> Any:
        return await self.network.listen(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # cancelled ones are dropped when they are due

    def _run_once(self) -> None:
        while not self._stopping:  # type: ignore[attr-defined]
            runnable = self._runnable
            if not runnable:
                self._advance()
                continue
            last = len(runnable) - 1
            index = int(self._choose() * (last + 1)) if last else 0
            node = runnable[index]
            handle = node.ready.popleft()
            if not node.ready:
                node.listed = False
                runnable[index] = runnable[last]
                runnable.pop()
            if not handle._cancelled:  # type: ignore[attr-defined]
                self.steps += 1
                handle._run()
                if self.steps - self._steps_before > STEPS_AT_ONCE_MAX:
                    raise Stalled(f"{node!r} spins at {self._now:.6f} s: {handle!r}")

    # processes

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def hold(self, node: Node) -> None:
        """Keep its callbacks back until ``release``; holds add up."""
        node.holds += 1
        self._unlist(node)

    def release(self, node: Node) -> None:
        node.holds -= 1
        self._list(node)

    def hold_for(self, node: Node, seconds: float) -> None:
        """Something that it called blocks the whole process, after what blocks it already."""
        if not node.dead and node is not self.outside:
            self.hold(node)
            node.busy_until = max(node.busy_until, self._now) + seconds
            self.call_at(node.busy_until, self.release, node, context=self.outside.context)

    def kill(self, node: Node) -> None:
        self._unlist(node)
        node.bury()

    def _list(self, node: Node) -> None:
        if node.ready and not node.listed and not node.holds and not node.dead:
            node.listed = True
            self._runnable.append(node)

    def _unlist(self, node: Node) -> None:
        if node.listed:
            node.listed = False
            self._runnable.remove(node)

    # time and order

    def _enqueue(self, handle: asyncio.Handle) -> None:
        node: Node = handle._context.get(NODE, self.outside)  # type: ignore[attr-defined]
        if node.dead:
            node.buried.append(handle)
            return
        node.ready.append(handle)
        if not node.listed and not node.holds:
            node.listed = True
            self._runnable.append(node)

    def _advance(self) -> None:
        """Jump to the next timer, and make ready all that are due then."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
        if not timers:
            raise Stalled(self._say("nothing is scheduled"))
        self._now = max(self._now, timers[0][0])
        self._steps_before = self.steps
        if self._now > self.limit_s:
            raise Stalled(self._say(f"{self.limit_s:g} s of virtual time are over"))
        while timers and timers[0][0] <= self._now:
            _, _, timer = heapq.heappop(timers)
            if not timer._cancelled:  # type: ignore[attr-defined]
                self._enqueue(timer)

    def _say(self, reason: str) -> str:
        waiting = waiting_places([node for node in self.nodes if not node.dead])
        return "\n  ".join([f"{reason} at {self._now:.3f} s; waiting are:", *waiting])

    def _make_task(
        self, _loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, context=context)
        node = context.get(NODE, self.outside) if context else NODE.get(self.outside)
        node.tasks.add(task)
        return task

    def _record(self, _loop: asyncio.AbstractEventLoop, trouble: dict[str, Any]) -> None:
        if isinstance(trouble.get("exception"), Killed):
            return
        handle = trouble.get("handle")
        node = handle._context.get(NODE, self.outside) if handle else NODE.get(self.outside)
        if not node.dead:
            self.unhandled.append({"node": node.name, **trouble})


def describe_unhandled(troubles: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{t['node']}: {t['message']}: {t.get('exception')!r}" for t in troubles]
