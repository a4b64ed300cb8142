"""Opening a listening socket.

Owns: the choice among a host's addresses, the sizes of the kernel's buffers, and the error for an
address that cannot be bound.  Must not know the purpose of a connection.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from sparklog.errors import StartError
from sparklog.transport.limits import ServerLimits


async def open_listener(
    host: str,
    port: int,
    limits: ServerLimits,
    make_protocol: Callable[[], asyncio.BaseProtocol],
) -> asyncio.Server:
    """Bind and accept.  Raises StartError when the address cannot be bound.

    Only one address of a host is used, IPv4 before others.  So port 0 stands for one port.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        listener = await loop.create_server(
            make_protocol,
            *address[:2],
            family=family,
            backlog=limits.backlog,
            reuse_address=True,
        )
    except OSError as error:
        raise _no_address(host, port, error) from error
    _size_buffers(listener, limits)
    return listener


def _size_buffers(listener: asyncio.Server, limits: ServerLimits) -> None:
    """Set the kernel's buffer sizes, which accepted connections inherit from the listener."""
    for option, size in (
        (socket.SO_RCVBUF, limits.receive_buffer_bytes),
        (socket.SO_SNDBUF, limits.send_buffer_bytes),
    ):
        if size > 0:
            listener.sockets[0].setsockopt(socket.SOL_SOCKET, option, size)


def _no_address(host: str, port: int, error: OSError) -> StartError:
    if error.errno == errno.EADDRINUSE:
        remedy = f"{os.strerror(errno.EADDRINUSE)}; choose another port, or 0 for any"
        return StartError(f"cannot listen at {host}:{port}: {remedy}")
    return StartError(f"cannot listen at {host}:{port}: {error}")
