"""The sending half of a connection: its interface, and the implementation on a socket.

Owns: ``writev`` and ``sendfile`` on the socket's descriptor, the socket's options, and the watch on
a full socket.  Must not know what is sent.  A transport that is not a socket (a simulated network)
supplies its own ``Wire`` as the extra info ``wire``.

asyncio refuses ``add_writer`` on the descriptor of a transport, so while the socket is full a
duplicate of it is watched.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from sparklog.storage_backends.base import Region

Buffer: TypeAlias = bytes | bytearray | memoryview


class Wire(Protocol):
    """The sending half of one connection.

    ``writev`` and ``send`` return the number of bytes that they took.  They raise BlockingIOError
    when the connection takes no bytes now, and OSError when it is lost.
    """

    @property
    def writev(self) -> Callable[[Sequence[Buffer]], int]: ...

    def send(self, region: Region, done: int) -> int:
        """Send a region from byte ``done`` on; return 0 if the region is shorter now."""

    def watch(self, on_writable: Callable[[], None]) -> None:
        """Call back whenever more can be sent, until ``unwatch``.  Raises OSError."""

    def unwatch(self) -> None: ...

    def close(self) -> None:
        """Release everything but the connection itself.  May be called twice."""


class SocketWire:
    """The wire of a connected socket; the transport still owns the socket."""

    __slots__ = ("_fd", "_loop", "_watched", "writev")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._fd = sock.fileno()
        self._watched = -1
        # Not a method: this call is made at every wake-up of every connection.
        self.writev: Callable[[Sequence[Buffer]], int] = partial(os.writev, self._fd)

    def send(self, region: Region, done: int) -> int:
        descriptor = region.descriptor()
        if descriptor is None:
            return os.write(self._fd, region.view()[done:])
        fd, offset = descriptor
        return os.sendfile(self._fd, fd, offset + done, region.size - done)

    def watch(self, on_writable: Callable[[], None]) -> None:
        if self._watched < 0:
            self._watched = os.dup(self._fd)
            self._loop.add_writer(self._watched, on_writable)

    def unwatch(self) -> None:
        if self._watched >= 0:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1

    def close(self) -> None:
        self.unwatch()
        self._fd = -1
        self.writev = _closed


def _closed(_buffers: Sequence[Buffer]) -> int:
    raise OSError(errno.EBADF, "the connection was closed")
