"""A server: a listening socket, and the connections that it accepted.

Owns: listening, the admission of connections, and draining.  Must not know what a frame means, nor
how a connection orders its responses (``server_connection.py``).
"""

import asyncio
import contextlib
import itertools
import logging

from sparklog.transport.idle import IdleWatch
from sparklog.transport.limits import ConnectionCount, ServerLimits
from sparklog.transport.listening import open_listener
from sparklog.transport.memory_pool import MemoryPool
from sparklog.transport.over_limit import OverLimitConnections, log_refusal
from sparklog.transport.server_connection import Handler, ServerConnection
from sparklog.transport.slice_scheduler import SliceScheduler

logger = logging.getLogger(__name__)

#: Time in which the loop must notice that a connection was cut.
_CUT_TIME_S = 1.0


class Server:
    """A listening socket and its connections.  ``close()`` drains it.

    ``over_limit_handler`` handles the requests of connections over a limit; without such a handler
    these connections are closed.
    """

    def __init__(
        self, handler: Handler, limits: ServerLimits, over_limit_handler: "Handler | None"
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.host = ""
        self.port = 0
        self.connections: set[ServerConnection] = set()
        self.connections_refused = 0
        self.connections_idle = 0
        self.frames_refused = 0
        self.memory = MemoryPool(limits)
        self.bytes_received = 0
        self.bytes_sent = 0
        self.scheduler = SliceScheduler()
        self.next_connection_number = itertools.count(1).__next__
        self._over_limit_handler = over_limit_handler
        self._over_limit: OverLimitConnections[ServerConnection] = OverLimitConnections()
        self._count = ConnectionCount()
        self._idle = IdleWatch(self.connections)
        self._listener: asyncio.Server | None = None
        self._closing = False
        self._all_gone: asyncio.Event = asyncio.Event()

    def set_limits(self, limits: ServerLimits) -> None:
        """Change the limits.  Open connections stay; the frame size applies to new connections."""
        if limits.idle_ms_max != self.limits.idle_ms_max and not self._closing:
            self._idle.set_limit(limits.idle_ms_max)
        self.limits = limits

    async def listen(self, host: str, port: int) -> None:
        """Bind and accept.  Raises StartError when the address cannot be bound."""
        self._listener = await open_listener(
            host, port, self.limits, lambda: ServerConnection(self)
        )
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]
        self._idle.set_limit(self.limits.idle_ms_max)

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop accepting, send the pending responses, then close.

        Connections whose responses were not sent after ``grace_s`` seconds are cut.
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
        self.memory.stop()

    async def _gone_within(self, timeout_s: float) -> bool:
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)
        return not self.connections

    def admit(self, connection: ServerConnection) -> bool:
        """Whether a new connection may stay open, even if only to prove cluster membership."""
        objection = self._count.objection(connection.address, self.limits)
        if self._closing or (objection and self._over_limit_handler is None):
            self.refuse(connection, objection or "the server is stopping")
            return False
        if objection and self._over_limit_handler is not None:
            self._over_limit.add(connection)
            connection.use_handler(self._over_limit_handler)
        self.connections.add(connection)
        self._count.add(connection.address)
        return True

    def refuse(self, connection: ServerConnection, reason: str) -> None:
        self.connections_refused += 1
        log_refusal(connection.peer, reason, self.connections_refused)

    def forget(self, connection: ServerConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._count.remove(connection.address)
            self.leave_over_limit(connection)
        if not self.connections:
            self._all_gone.set()

    def leave_over_limit(self, connection: ServerConnection) -> None:
        self._over_limit.remove(connection)


async def serve(
    host: str,
    port: int,
    handler: Handler,
    *,
    limits: ServerLimits | None = None,
    over_limit_handler: "Handler | None" = None,
) -> Server:
    """Start a server at an address (port 0: any free port).  Raises StartError.

    ``over_limit_handler`` is for members of the cluster that connect when clients use up the
    limits: it handles nothing but the proof of membership.
    """
    server = Server(handler, limits or ServerLimits(), over_limit_handler)
    await server.listen(host, port)
    return server


def _peer(connection: ServerConnection) -> str:
    """The key of an order of connections that does not depend on addresses in memory."""
    return connection.peer
