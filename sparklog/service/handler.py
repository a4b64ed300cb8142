"""The shape of a request handler.

Owns: what a handler is told about a request, and what it declares about its API.  Must not know
how frames arrive or in which process it runs.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparklog.errors import KafkaError
from sparklog.transport import Reply, ServerConnection
from sparklog.wire.codec import RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Who asks, and in which version."""

    header: RequestHeader
    connection: ServerConnection

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def member(self) -> bool:
        """Whether the peer has proved that it belongs to the cluster."""
        return self.connection.member


#: A response, or an awaitable of one, or None when no answer is owed (Produce with acks=0).
#: A future costs less than a coroutine: it needs no task.
Handled: TypeAlias = Any | Awaitable[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHandler:
    """One API of a node.

    ``handle`` is called synchronously at receipt and in request order; buffers inside the request
    are valid only during that call.  It raises ``KafkaError`` to refuse; ``error_response`` turns
    that into the API's answer (None: no answer is owed); it may be left out when the response has
    an ``error_code`` of its own.  ``decode`` and ``encode`` replace the generic codec;
    ``advertised_min`` shows a lower version to clients than is served; ``unsupported`` answers
    versions outside the range (without it the connection is closed, as Kafka does).
    """

    api_key: int
    min_version: int
    max_version: int
    handle: Callable[[RequestContext, Any], Handled]
    decode: Callable[[RequestHeader, memoryview], Any] | None = None
    encode: Callable[[RequestHeader, Any], Reply] | None = None
    error_response: Callable[[Any, KafkaError], Any] | None = None
    unsupported: Callable[[RequestHeader], Reply] | None = None
    advertise: bool = True
    advertised_min: int | None = None
    members_only: bool = False
