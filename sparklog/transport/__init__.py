"""Frames over TCP: the only asyncio sockets, for servers and for clients.

Owns: connections, the order of responses, back pressure, and the sending of bytes (one ``writev``
for many small responses, a non-blocking ``sendfile`` for each file region).  Must not know what a
frame means.
"""

from sparklog.transport.client import ClientConnection, connect
from sparklog.transport.limits import ServerLimits
from sparklog.transport.pending_response import ParkedResponse, PendingResponse, SlicedResponse
from sparklog.transport.send_queue import EncodedResponse, encoded_size
from sparklog.transport.server import Server, serve
from sparklog.transport.server_connection import Handler, HandlerResult, ServerConnection
from sparklog.transport.wire import Buffer

__all__ = [
    "Buffer",
    "ClientConnection",
    "EncodedResponse",
    "Handler",
    "HandlerResult",
    "ParkedResponse",
    "PendingResponse",
    "Server",
    "ServerConnection",
    "ServerLimits",
    "SlicedResponse",
    "connect",
    "encoded_size",
    "serve",
]
