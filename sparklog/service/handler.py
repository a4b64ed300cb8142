"""The shape of a request handler.

Owns: what a handler is told about a request, and what it declares about its API.  Must not know
how frames arrive or in which process it runs.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from sparklog.errors import KafkaError
from sparklog.transport import Answer, Reply, ServerConnection
from sparklog.wire.codec import RequestHeader


class RequestContext(NamedTuple):
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
#: Makes the answer to a request (its header, what ``error_response`` needs of it) that was handled.
AnswerWith: TypeAlias = Callable[[RequestHeader, Any, Handled], Answer]


class Repeats(Protocol):
    """Handles requests that are like earlier ones of their connection without decoding them anew.

    Worth it where a request's own work is small, or where that of several can be shared.  Frames
    are valid only during a call.
    """

    def handle(
        self,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
        answer: AnswerWith,
    ) -> Sequence[Answer] | None:
        """None when the request is not known: it is decoded and handled in full.

        May take those behind it off the left of ``frames``; the answers are to the request and to
        them, each what handling in full would come to.
        """

    def learn(self, context: RequestContext, frame: memoryview, request: Any) -> None:
        """A request was handled in full; it may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHandler:
    """One API of a node.

    ``handle`` is called synchronously at receipt and in request order; buffers inside the request
    are valid only during that call.  It raises ``KafkaError`` to refuse; ``error_response`` turns
    that into the API's answer (None: no answer is owed); it may be left out when the response has
    an ``error_code`` of its own.  ``keep`` gives what of a request ``error_response`` needs if the
    answer comes later; without it, an answer that waits holds the receive buffer of its request.
    ``repeats`` is asked before a request is decoded.  ``decode`` and ``encode`` replace the generic
    codec; ``advertised_min`` shows a lower version to clients than is served; ``unsupported``
    answers versions outside the range (without it the connection is closed, as Kafka does).
    """

    api_key: int
    min_version: int
    max_version: int
    handle: Callable[[RequestContext, Any], Handled]
    repeats: Repeats | None = None
    decode: Callable[[RequestHeader, memoryview], Any] | None = None
    encode: Callable[[RequestHeader, Any], Reply] | None = None
    error_response: Callable[[Any, KafkaError], Any] | None = None
    keep: Callable[[Any], Any] | None = None
    unsupported: Callable[[RequestHeader], Reply] | None = None
    advertise: bool = True
    advertised_min: int | None = None
    members_only: bool = False
