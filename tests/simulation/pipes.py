"""One simulated connection: two ends, each with the bytes that are on their way to it.

Owns: the transport and the wire that the real protocols of ``sparklog.transport`` get, bounded
pipes, partial sends, arrival in order, the end of a connection.  Must not know which links are slow
or cut; it asks the network.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Protocol

from sparklog.storage_backends.base import Buffer, Region
from tests.simulation.actors import Killed, Node, current_node

#: Bytes on their way to one end, or not read there yet, at which its peer must wait.
PIPE_BYTES_MAX = 64 * 1024

_EOF = b""


class Links(Protocol):
    """What a connection asks of the network."""

    loop: asyncio.AbstractEventLoop
    kernel: Context

    def delay_s(self, source: str, target: str) -> float: ...

    def is_cut(self, source: str, target: str) -> bool: ...

    def split(self, size: int) -> int:
        """How much of ``size`` bytes goes through in one call: 1 to ``size``."""

    def forget(self, end: "End") -> None: ...


class End(asyncio.Transport):
    """One end; what ``asyncio`` calls a transport."""

    def __init__(
        self, links: Links, node: Node, context: Context, address: tuple[str, int]
    ) -> None:
        super().__init__()
        self.node = node
        self.address = address
        self.peer: End
        self.closed = False  # by this side: nothing more is received
        self.lost = False  # the protocol was told, or will be
        self._links = links
        self._loop = links.loop
        self._context = context
        self._protocol: Any = None
        self._paused = False
        #: Still travelling: when it arrives, and what.
        self._travelling: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._arrived: deque[bytes] = deque()
        self._held_bytes = 0
        self._reading = False
        self._breaking = 0
        self._broken = 0
        self._silent = False
        self._wire = SimulatedWire(self)

    def __repr__(self) -> str:
        return f"{self.node.name}:{self.address[1]}"

    # the protocol's side

    def start(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_read()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"wire": self._wire, "peername": self.peer.address, "sockname": self.address}
        return known.get(name, default)

    def is_closing(self) -> bool:
        return self.closed or self.lost

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule_read()

    def close(self) -> None:
        """As the kernel does it: what was sent still arrives, then the end of the stream."""
        if not self.closed:
            self.closed = True
            unread = bool(self._arrived)
            self._arrived.clear()
            if unread:
                self.peer.break_after(self._delay_to_peer(), errno.ECONNRESET)
            else:
                self.peer.take(_EOF, self._delay_to_peer())
            self._lose(None)

    def abort(self) -> None:
        self.close()

    # the wire's side

    def room(self) -> int:
        """Bytes that can be sent now; raises what a send would."""
        if current_node() is not None and self.node.dead:
            raise Killed
        if self.closed or self._broken:
            code = self._broken or errno.EPIPE
            raise OSError(code, os.strerror(code))
        return PIPE_BYTES_MAX - self.peer._held_bytes

    def send(self, data: bytes) -> None:
        self.peer.take(data, self._delay_to_peer())

    def schedule_writable(self) -> None:
        self._wire.schedule()

    # the network's side

    def take(self, data: bytes, delay_s: float) -> None:
        """Bytes (or the end of the stream) on their way here."""
        self._held_bytes += len(data)
        arrival = max(self._last_arrival, self._loop.time() + delay_s)
        self._last_arrival = arrival
        self._travelling.append((arrival, data))
        if len(self._travelling) == 1:
            self._loop.call_at(arrival, self._arrive, context=self._links.kernel)

    def resend(self) -> None:
        """What was held up by a cut link starts again."""
        delay_s = self._links.delay_s(self.peer.node.host, self.node.host)
        if self._travelling:
            self._loop.call_later(delay_s, self._arrive, context=self._links.kernel)
        if self._breaking:
            self._loop.call_later(delay_s, self._break, context=self._links.kernel)

    def break_after(self, delay_s: float, code: int) -> None:
        """A reset on its way: nothing that has not been read when it arrives will be."""
        if not self._breaking:
            self._breaking = code
            self._loop.call_later(delay_s, self._break, context=self._links.kernel)

    def die(self, *, silent: bool) -> None:
        """The process of this end is gone; the kernel says so, unless the machine is gone too."""
        self.lost = True
        self._silent = silent
        if not self.closed:
            self.closed = True
            if not silent:
                if self._arrived:
                    self.peer.break_after(self._delay_to_peer(), errno.ECONNRESET)
                else:
                    self.peer.take(_EOF, self._delay_to_peer())
        self._links.forget(self)

    def _delay_to_peer(self) -> float:
        return self._links.delay_s(self.node.host, self.peer.node.host)

    def _arrive(self) -> None:
        links = self._links
        if links.is_cut(self.peer.node.host, self.node.host):
            return  # until ``resend``
        now = self._loop.time()
        travelling = self._travelling
        while travelling and travelling[0][0] <= now:
            _, data = travelling.popleft()
            if self._silent:
                continue
            if self.closed:
                self._held_bytes -= len(data)
                if data:  # nobody is there any more
                    self.peer.break_after(self._delay_to_peer(), errno.ECONNRESET)
            else:
                self._arrived.append(data)
        if travelling:
            self._loop.call_at(travelling[0][0], self._arrive, context=links.kernel)
        self._schedule_read()

    def _schedule_read(self) -> None:
        ready = self._arrived and self._protocol is not None and not self._paused
        if ready and not self._reading and not self.lost:
            self._reading = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._reading = False
        if self._paused or self.lost or not self._arrived:
            return
        data = self._arrived.popleft()
        if data is _EOF:
            if not self._protocol.eof_received():
                self.close()
        else:
            self._receive(data)
        self._schedule_read()

    def _receive(self, data: bytes) -> None:
        buffer = self._protocol.get_buffer(-1)
        size = min(len(buffer), self._links.split(len(data)))
        if size < len(data):
            self._arrived.appendleft(data[size:])
        buffer[:size] = data[:size]
        self._held_bytes -= size
        self.peer.schedule_writable()
        self._protocol.buffer_updated(size)

    def _break(self) -> None:
        from_peer = self._breaking == errno.ECONNRESET
        if from_peer and self._links.is_cut(self.peer.node.host, self.node.host):
            return  # until ``resend``
        self._broken = self._breaking
        self._arrived.clear()
        self._lose(OSError(self._broken, os.strerror(self._broken)))

    def _lose(self, error: OSError | None) -> None:
        if not self.lost:
            self.lost = True
            self.closed = True
            self._links.forget(self)
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)


class SimulatedWire:
    """The sending half of an end (``sparklog.transport.wire.Wire``)."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._on_writable: Callable[[], None] | None = None
        self._scheduled = False

    def writev(self, buffers: Sequence[Buffer]) -> int:
        return self._send(b"".join(buffers))

    def send(self, region: Region, done: int) -> int:
        return self._send(bytes(region.view()[done:]))

    def watch(self, on_writable: Callable[[], None]) -> None:
        self._on_writable = on_writable
        self.schedule()

    def unwatch(self) -> None:
        self._on_writable = None

    def close(self) -> None:
        self.unwatch()

    def _send(self, data: bytes) -> int:
        room = self._end.room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not data:
            return 0
        size = min(room, len(data))
        if len(data) > 1:
            size = min(size, self._end._links.split(len(data)))
        self._end.send(data[:size])
        return size

    def schedule(self) -> None:
        """Tell the watcher, if there is one and it could send, at the next turn of its loop."""
        end = self._end
        if self._on_writable is None or self._scheduled or end.lost:
            return
        if end.peer._held_bytes < PIPE_BYTES_MAX or end._broken:
            self._scheduled = True
            end._loop.call_soon(self._fire, context=end._context)

    def _fire(self) -> None:
        self._scheduled = False
        if self._on_writable is not None and not self._end.lost:
            self._on_writable()
            self.schedule()
