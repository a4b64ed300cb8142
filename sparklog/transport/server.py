"""The server's end: requests in, answers out in the order of the requests.

Owns: listening, who may connect, parked answers, back pressure and draining.  Must not know what a
frame means.

A client that does not read its answers is not read from, and holds no more than
``UNSENT_BYTES_MAX`` and one answer; if it makes no progress at all it is idle and will be closed.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from sparklog.errors import DecodeError, FrameError, StartError
from sparklog.transport.channel import UNSENT_BYTES_MAX, Channel
from sparklog.transport.idle import IdleWatch
from sparklog.transport.limits import ConnectionCount, ServerLimits
from sparklog.transport.outbox import Reply, release_all, reply_size
from sparklog.transport.owed import Owed
from sparklog.wire.frames import FrameDecoder

logger = logging.getLogger(__name__)

#: Requests of one connection that may wait for their answer before reading pauses.
PARKED_REPLIES_MAX = 512
#: Connections over a limit that may still prove that they are a member's; the oldest gives way.
DOOR_CONNECTIONS_MAX = 32

#: What the loop may take to notice that a connection was cut.
_CUT_TIME_S = 1.0


@dataclass(frozen=True, slots=True)
class Parked:
    """An answer that is not known yet.

    ``finish`` is called with the finished future of ``awaitable``; it must not raise.
    """

    awaitable: Awaitable[Any]
    finish: "Callable[[asyncio.Future[Any]], Reply | None]"


#: None: no answer is owed.
Answer: TypeAlias = "Reply | Parked | Owed | None"
#: Called at receipt with frames that arrived together.  It takes one or more off the left and gives
#: as many answers.  The frames are valid only during the call.
Handler: TypeAlias = "Callable[[ServerConnection, deque[memoryview]], Sequence[Answer]]"


class ServerConnection(Channel):
    """One client of a server.

    ``member`` becomes true when the peer has proved that it belongs to the cluster; ``state`` holds
    what request handlers remember about the connection.
    """

    def __init__(self, server: "Server") -> None:
        super().__init__(FrameDecoder(server.limits.frame_bytes_max))
        self.member = False
        self.address = ""
        self.state: dict[str, Any] = {}
        self._server = server
        self._handler = server.handler
        self._stirred = True
        self._looks_idle = 0
        self._frames: deque[memoryview] = deque()
        self._slots: deque[Owed] = deque()
        self._held_bytes = 0
        self._paused = False
        self._ending = False
        self._turn_wanted = False
        self._close_callbacks: list[Callable[[], None]] = []
        self._eof_callbacks: list[Callable[[], None]] = []

    @property
    def parked(self) -> int:
        """Answers that wait, or wait behind one that does."""
        return len(self._slots)

    @property
    def unsent_bytes(self) -> int:
        return self._held_bytes + (self._out.unsent if self._out else 0)

    def call_on_close(self, callback: Callable[[], None]) -> None:
        """Have something forgotten when the peer goes away."""
        self._close_callbacks.append(callback)

    def call_on_eof(self, callback: Callable[[], None]) -> None:
        """Have something hurried when the peer asks nothing more; it may still take answers."""
        self._eof_callbacks.append(callback)

    def finish(self) -> None:
        """Take no more requests; close once every answer that is owed has left."""
        if not self._ending and not self.closed:
            self._ending = True
            self._frames.clear()
            self._pause()
            self._close_if_done()

    def welcome(self) -> None:
        """Who waited at the door has proved to be a member."""
        self._handler = self._server.handler
        self._server.leave_door(self)

    def wait_at_door(self, door: Handler) -> None:
        """Until ``welcome``, ``door`` handles the requests; it may raise FrameError."""
        self._handler = door

    def looked_at(self, looks_max: int) -> None:
        """Close a client that sent nothing and took nothing for so many looks in a row.

        One that waits for an answer of ours is not idle.
        """
        owed = bool(self._slots) and not (self._out and self._out.unsent)
        if self._stirred or owed:
            self._stirred = False
            self._looks_idle = 0
            return
        self._looks_idle += 1
        if self._looks_idle >= looks_max:
            self._server.connections_idle += 1
            logger.info("connection of %s closed: it was idle", self.peer)
            self.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.address = name[0] if name else ""
        if not self._server.admit(self):
            self.abort()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ending or self.closed:
            return
        self._server.bytes_received += nbytes
        self._stirred = True
        try:
            self._frames.extend(self._decoder.buffer_updated(nbytes))
        except FrameError as error:
            self._refuse(error)
        else:
            self._pump()

    def eof_received(self) -> bool:
        # The peer may have closed only its half: what it asked for before is still owed.
        self._ending = True
        for callback in self._eof_callbacks:
            callback()
        self._close_if_done()
        return not self.closed

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._server.forget(self)
        for slot in self._slots:
            release_all(slot.reply)
        self._slots.clear()
        callbacks, self._close_callbacks = self._close_callbacks, []
        self._eof_callbacks.clear()
        for callback in callbacks:
            callback()

    # requests in

    def _pump(self) -> None:
        """Handle frames until none is left or too much is owed."""
        try:
            while True:
                more = self._handle_frames()
                self._flush()
                if self.closed:
                    return
                if not more:
                    self._resume()
                    self._close_if_done()
                    return
                if self._overloaded(1):
                    self._pause()
                    return
        except (FrameError, DecodeError) as error:
            self._refuse(error)
        except Exception:
            logger.exception("connection of %s closed: a request could not be handled", self.peer)
            self.abort()

    def _refuse(self, error: Exception) -> None:
        self._flush()  # what was asked before is still owed
        if self._handler is not self._server.handler:
            self._server.refuse(self, str(error))
        else:
            self._server.frames_refused += 1
            logger.warning("connection of %s closed: %s", self.peer, error)
        self.abort()

    def _handle_frames(self) -> bool:
        """True when it stopped because too much is owed."""
        frames = self._frames
        while frames:
            for answer in self._handler(self, frames):
                if isinstance(answer, Owed):
                    self._owe(answer)
                elif isinstance(answer, Parked):
                    self._park(answer)
                elif answer is not None:
                    self._answer(answer)
            if self.closed:
                return False
            if self._overloaded(1):
                return True
        return False

    def _overloaded(self, divisor: int) -> bool:
        return (
            len(self._slots) * divisor >= PARKED_REPLIES_MAX
            or self.unsent_bytes * divisor >= UNSENT_BYTES_MAX
        )

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._ending and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # answers out

    def _answer(self, reply: Reply) -> None:
        if self.closed:
            release_all(reply)
        elif self._slots:
            self._held_bytes += reply_size(reply)
            self._slots.append(Owed(reply, known=True))
        elif self._out is not None:
            self._out.put(reply)

    def _owe(self, owed: Owed) -> None:
        if not owed.known:
            owed.on_given = self._given
            self._slots.append(owed)
        elif owed.reply is not None:
            self._answer(owed.reply)

    def _park(self, parked: Parked) -> None:
        owed = Owed()
        self._owe(owed)
        owed.future = future = asyncio.ensure_future(parked.awaitable)
        if future.done():
            self._unpark(owed, parked.finish, future)
        else:
            future.add_done_callback(partial(self._unpark, owed, parked.finish))

    def _unpark(
        self,
        owed: Owed,
        finish: "Callable[[asyncio.Future[Any]], Reply | None]",
        future: "asyncio.Future[Any]",
    ) -> None:
        try:
            reply = finish(future)
        except Exception:
            logger.exception("connection of %s closed: no answer could be made", self.peer)
            self.abort()
            return
        owed.future = None
        owed.give(reply)

    def _given(self, owed: Owed) -> None:
        if self.closed:
            release_all(owed.reply)
            return
        if owed.reply is not None:
            self._held_bytes += reply_size(owed.reply)
        if self._slots[0] is owed and not self._turn_wanted:
            # Many answers become known in one turn of the loop: they leave together.
            self._turn_wanted = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_wanted = False
        self._flush()
        self._go_on(1)

    def _go_on(self, divisor: int) -> None:
        """After answers have left: more requests, or the end."""
        if self.closed:
            return
        if self._paused and not self._ending and not self._overloaded(divisor):
            self._pump()
        else:
            self._close_if_done()

    def _flush(self) -> None:
        out = self._out
        if out is None or self.closed:
            return
        slots = self._slots
        while slots and slots[0].known:
            reply = slots.popleft().reply
            if reply is not None:
                self._held_bytes -= reply_size(reply)
                out.put(reply)
        if out.unsent:
            before = out.unsent
            out.flush()
            sent = before - out.unsent
            if sent > 0:
                self._server.bytes_sent += sent
                self._stirred = True

    def _writable(self) -> None:
        self._flush()
        self._go_on(2)

    def _close_if_done(self) -> None:
        if self._ending and not self.closed and not self._slots and not self.unsent_bytes:
            self.closed = True
            if self._transport is not None:
                self._transport.close()


class Server:
    """A listening socket and its connections.  ``close()`` drains it.

    ``door`` handles the requests of connections over a limit; without it they are closed.
    """

    def __init__(self, handler: Handler, limits: ServerLimits, door: "Handler | None") -> None:
        self.handler = handler
        self.limits = limits
        self.host = ""
        self.port = 0
        self.connections: set[ServerConnection] = set()
        self.connections_refused = 0
        self.connections_idle = 0
        self.frames_refused = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self._door = door
        self._at_door: dict[ServerConnection, None] = {}
        self._count = ConnectionCount()
        self._idle = IdleWatch(self.connections)
        self._listener: asyncio.Server | None = None
        self._closing = False
        self._all_gone: asyncio.Event = asyncio.Event()

    def set_limits(self, limits: ServerLimits) -> None:
        """What is open stays; the frame size counts for new connections."""
        if limits.idle_ms_max != self.limits.idle_ms_max and not self._closing:
            self._idle.set_limit(limits.idle_ms_max)
        self.limits = limits

    async def listen(self, host: str, port: int) -> None:
        """Bind and accept.  Raises StartError when the address cannot be had.

        Of several addresses of a host it is one, IPv4 before others: port 0 is then one port.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
            self._listener = await loop.create_server(
                lambda: ServerConnection(self),
                *address[:2],
                family=family,
                backlog=self.limits.backlog,
                reuse_address=True,
            )
        except OSError as error:
            raise _no_address(host, port, error) from error
        self._size_buffers(self._listener)
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]
        self._idle.set_limit(self.limits.idle_ms_max)

    def _size_buffers(self, listener: asyncio.Server) -> None:
        """Connections inherit the sizes of the socket that they are accepted at."""
        limits = self.limits
        for option, size in (
            (socket.SO_RCVBUF, limits.receive_buffer_bytes),
            (socket.SO_SNDBUF, limits.send_buffer_bytes),
        ):
            if size > 0:
                listener.sockets[0].setsockopt(socket.SOL_SOCKET, option, size)

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop accepting, send the answers that are owed, then close.

        Connections whose answers have not left after ``grace_s`` are cut.
        """
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        self._all_gone.clear()
        for connection in sorted(self.connections, key=_peer):
            connection.finish()
        if not await self._gone_within(grace_s):
            logger.warning("cutting %d connections that did not drain", len(self.connections))
            for connection in sorted(self.connections, key=_peer):
                connection.abort()
            await self._gone_within(_CUT_TIME_S)
        self._idle.stop()

    async def _gone_within(self, timeout_s: float) -> bool:
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)
        return not self.connections

    def admit(self, connection: ServerConnection) -> bool:
        """Whether a new connection may stay, if only at the door."""
        objection = self._count.objection(connection.address, self.limits)
        if self._closing or (objection and self._door is None):
            self.refuse(connection, objection or "the server is stopping")
            return False
        if objection and self._door is not None:
            self._wait_at_door(connection, self._door)
        self.connections.add(connection)
        self._count.add(connection.address)
        return True

    def refuse(self, connection: ServerConnection, reason: str) -> None:
        """Count it, and say so, but not once per try of every client."""
        self.connections_refused += 1
        if self.connections_refused.bit_count() == 1:
            logger.warning(
                "connection of %s refused: %s (%d refused so far)",
                connection.peer,
                reason,
                self.connections_refused,
            )

    def forget(self, connection: ServerConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._count.remove(connection.address)
            self.leave_door(connection)
        if not self.connections:
            self._all_gone.set()

    def leave_door(self, connection: ServerConnection) -> None:
        self._at_door.pop(connection, None)

    def _wait_at_door(self, connection: ServerConnection, door: Handler) -> None:
        while len(self._at_door) >= DOOR_CONNECTIONS_MAX:
            oldest = next(iter(self._at_door))
            self.leave_door(oldest)
            oldest.abort()
        self._at_door[connection] = None
        connection.wait_at_door(door)


async def serve(
    host: str,
    port: int,
    handler: Handler,
    *,
    limits: ServerLimits | None = None,
    door: "Handler | None" = None,
) -> Server:
    """Answer frames at an address (port 0: any free one).  Raises StartError.

    ``door`` is for members of the cluster that connect when clients use up the limits: it handles
    nothing but their proof.
    """
    server = Server(handler, limits or ServerLimits(), door)
    await server.listen(host, port)
    return server


def _peer(connection: ServerConnection) -> str:
    """An order of connections that does not depend on where they lie in memory."""
    return connection.peer


def _no_address(host: str, port: int, error: OSError) -> StartError:
    if error.errno == errno.EADDRINUSE:
        remedy = f"{os.strerror(errno.EADDRINUSE)}; choose another port, or 0 for any"
        return StartError(f"cannot listen at {host}:{port}: {remedy}")
    return StartError(f"cannot listen at {host}:{port}: {error}")
