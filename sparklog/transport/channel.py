"""The part of a connection that both ends share: framing, sending, and closing.

Owns: the asyncio protocol of a connection, and its send queue.  Must not know which end sends
requests and which end responds.
"""

import asyncio
import errno
import logging
from typing import Protocol, cast

from sparklog.transport.send_queue import SendQueue
from sparklog.transport.wire import SocketWire, Wire

logger = logging.getLogger(__name__)

#: Unsent bytes of one connection (file regions included) at which it handles no more requests.
UNSENT_BYTES_MAX = 4 * 1024 * 1024


class Decoder(Protocol):
    """A decoder that turns received bytes into whole frames."""

    def get_buffer(self, size_hint: int = -1, /) -> memoryview: ...

    def buffer_updated(self, byte_count: int, /) -> list[memoryview]: ...

    def close(self) -> None: ...


class Channel(asyncio.BufferedProtocol):
    """One end of a connection."""

    def __init__(self, decoder: Decoder) -> None:
        self.peer = "?"
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._decoder = decoder
        self._transport: asyncio.Transport | None = None
        self._out: SendQueue | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wire: Wire | None = transport.get_extra_info("wire")
        if wire is None:
            wire = SocketWire(self._loop, transport.get_extra_info("socket"))
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._out = SendQueue(wire, self._writable, self._send_failed)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        raise NotImplementedError

    def connection_lost(self, error: Exception | None) -> None:
        """Release all memory and every reference back to this object, so that the memory is freed
        without a garbage collection."""
        self.closed = True
        if self._out is not None:
            self._out.close()
        self._transport = None
        self._decoder.close()

    def abort(self) -> None:
        """Close now; unsent bytes are lost."""
        self.closed = True
        if self._out is not None:
            self._out.close()
        if self._transport is not None:
            self._transport.abort()

    def _writable(self) -> None:
        raise NotImplementedError

    def _send_failed(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT):
            logger.warning("connection of %s closed: sending failed: %s", self.peer, error)
        self.abort()
