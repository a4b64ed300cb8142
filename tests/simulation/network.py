"""The simulated network: hosts by name, links between them, and what can be done to those.

Owns: listeners, connecting, delays, cuts, resets.  Must not know what is said on connections.

A link is a pair of host names.  What is sent over a cut link arrives after it was healed, if the
connection lives that long; a kernel that gets no answer may give up before.
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.actors import Node, current_node
from tests.simulation.loop import VirtualLoop
from tests.simulation.pipes import End

FIRST_EPHEMERAL_PORT = 40_000
#: Delay of an ordinary link, in seconds: shortest and longest.
DELAY_S = (0.000_05, 0.001)
#: One call in so many sends or receives only a part.
SPLITS_ONE_IN = 12
#: A kernel gives a connection up after so long without an answer.
GIVE_UP_S = (3.0, 40.0)


class Listener(asyncio.AbstractServer):
    """What ``create_server`` gives back; its own socket, as far as anybody asks."""

    def __init__(
        self, network: "Network", factory: Callable[[], Any], host: str, port: int
    ) -> None:
        node = current_node()
        assert node is not None, "only a process of the world can listen"
        self.node = node
        self.address = (host, port)
        self.sockets = (self,)
        self.factory = factory
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self._network.close_listener(self)


class Network:
    """``note`` gets what happens to connections, for the trace."""

    def __init__(
        self, loop: VirtualLoop, random: random.Random, note: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.kernel = loop.add(Node("kernel")).context
        self._random = random
        self._note = note
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: dict[End, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._healed: list[asyncio.Future[None]] = []
        self._next_port = FIRST_EPHEMERAL_PORT

    # the loop's side

    async def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        key = (host, port or self._port())
        if key in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[key] = Listener(self, factory, *key)
        return listener

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[End, Any]:
        node = current_node()
        assert node is not None, "only a process of the world can connect; use node.run()"
        await self._travel(node.host, host)
        listener = self._listeners.get((host, port))
        if listener is None:
            await self._travel(host, node.host)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses connections")
        end, far = self._pair(node, (node.host, self._port()), listener)
        # A kernel accepts connections of a process that stands still.
        context = listener.node.context.copy()
        self.loop.call_soon(self._accept, far, listener.factory, context=context)
        try:
            await self._travel(host, node.host)
        except BaseException:
            end.close()
            raise
        protocol = factory()
        end.start(protocol)
        return end, protocol

    def close_listener(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    # connections' side

    def delay_s(self, source: str, target: str) -> float:
        low, high = self._slow.get((source, target), DELAY_S)
        return low + self._random.random() * (high - low)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def split(self, size: int) -> int:
        if size > 1 and self._random.random() * SPLITS_ONE_IN < 1:
            return self._random.randint(1, size - 1)
        return size

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    # the world's side

    def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Nothing passes between two hosts any more; some connections are given up later."""
        self._cuts[one, other] = None
        if not one_way:
            self._cuts[other, one] = None
        for end in self._between(one, other):
            if self._random.random() < 0.3:
                low, high = GIVE_UP_S
                after_s = low + self._random.random() * (high - low)
                self.loop.call_later(after_s, self._give_up, end, context=self.kernel)

    def slow(self, one: str, other: str, low_s: float, high_s: float) -> None:
        for pair in ((one, other), (other, one)):
            self._slow[pair] = (low_s, high_s)

    def hasten(self, one: str, other: str) -> None:
        """What is sent from now on is fast again; what is under way is as late as it was."""
        for pair in ((one, other), (other, one)):
            self._slow.pop(pair, None)

    def heal(self) -> None:
        """All links are whole and fast; what was held up travels again."""
        cuts, self._cuts = self._cuts, {}
        self._slow.clear()
        for end in list(self._ends):
            if (end.peer.node.host, end.node.host) in cuts:
                end.resend()
        healed, self._healed = self._healed, []
        for waiting in healed:
            if not waiting.done():
                waiting.set_result(None)

    def reset(self, one: str, other: str) -> int:
        """Break every connection between two hosts; how many."""
        ends = self._between(one, other)
        for end in ends:
            end.break_after(self.delay_s(one, other), errno.ECONNRESET)
        return len(ends) // 2

    def end_process(self, node: Node, *, silent: bool) -> None:
        """``silent``: its machine is gone, so nobody is told."""
        for key in [key for key, listener in self._listeners.items() if listener.node is node]:
            del self._listeners[key]
        for end in [end for end in self._ends if end.node is node]:
            end.die(silent=silent)

    def power_on(self, host: str) -> None:
        """A machine that comes back knows nothing of its former connections, and says so."""
        for end in list(self._ends):
            if end.peer.node.host == host and end.peer.closed:
                end.break_after(self.delay_s(host, end.node.host), errno.ECONNRESET)

    def take_address(self, host: str) -> None:
        """New connections to this host find other listeners than before."""
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    @property
    def connections(self) -> int:
        return len(self._ends) // 2

    def _give_up(self, end: End) -> None:
        one, other = end.node.host, end.peer.node.host
        if not end.lost and (self.is_cut(one, other) or self.is_cut(other, one)):
            self._note(f"{end!r} gives up on {end.peer!r}")
            end.break_after(0.0, errno.ETIMEDOUT)

    def _between(self, one: str, other: str) -> list[End]:
        hosts = {one, other}
        return [end for end in self._ends if {end.node.host, end.peer.node.host} == hosts]

    def _pair(self, node: Node, address: tuple[str, int], listener: Listener) -> tuple[End, End]:
        end = End(self, node, node.context.copy(), address)
        far = End(self, listener.node, listener.node.context.copy(), listener.address)
        end.peer, far.peer = far, end
        self._ends[end] = self._ends[far] = None
        return end, far

    def _accept(self, end: End, factory: Callable[[], Any]) -> None:
        if not end.lost:
            end.start(factory())

    def _port(self) -> int:
        self._next_port += 1
        return self._next_port - 1

    async def _travel(self, source: str, target: str) -> None:
        while self.is_cut(source, target):
            healed: asyncio.Future[None] = self.loop.create_future()
            self._healed.append(healed)
            await healed
        await asyncio.sleep(self.delay_s(source, target))
