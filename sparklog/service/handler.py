"""The interface of a request handler.

Owns: the context of a request, the declaration of an API, and the bounds of the work on one
request.  Must not know how frames arrive or in which process a handler runs.

Every handler follows one rule: the work of a request is bounded before it begins, and no part of it
blocks the event loop for long.

* ``items_max`` limits the items of a request; a request with more items ends its connection.
* A resource that is named several times is handled once, or refused, as in Kafka.  So the work is
  bounded by the resources that the request names and by those that the cluster has.
* Work on a few items is done on receipt.  Work on more items is a generator (``sparklog.slices``),
  and the loop serves other connections between its slices.  This holds for ``handle``,
  ``error_response``, ``encode`` and the result of an awaitable; dispatch decodes and encodes in
  slices, too.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from sparklog.errors import KafkaError
from sparklog.slices import Slices
from sparklog.transport import EncodedResponse, HandlerResult, ServerConnection
from sparklog.wire.protocol.codec import MAX_REQUEST_ITEMS, RequestHeader

#: Most items of a request that names no topics.  Kafka's have none; newer clients may add fields.
FEW_ITEMS: Final = 100
#: Most items of a request about topics and partitions: those of a cluster of the largest size.
MANY_ITEMS: Final = MAX_REQUEST_ITEMS


NO_BODY: Final = memoryview(b"")
_OWN_CLIENT: Final = "own client"


class RequestContext(NamedTuple):
    """The header and the connection of a request; the ``body`` only if the handler needs it."""

    header: RequestHeader
    connection: ServerConnection
    body: memoryview = NO_BODY

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

    @property
    def own_client(self) -> bool:
        """Whether the peer has said in ApiVersions that it is a client of sparklog's."""
        return bool(self.connection.state.get(_OWN_CLIENT))

    def mark_own_client(self) -> None:
        self.connection.state[_OWN_CLIENT] = True


#: A response, or an awaitable of one, or slices that end with one of these, or None for requests
#: without a response (Produce with acks=0).  A future needs no task, so it costs less than a
#: coroutine.
Handled: TypeAlias = Any | Awaitable[Any] | None
#: Makes the response from the header of a request, the part that ``error_response`` needs, and the
#: result.
EncodeResult: TypeAlias = Callable[[RequestHeader, Any, Handled], HandlerResult]


class Repeats(Protocol):
    """Handles requests that repeat earlier ones of their connection without decoding them again.

    This pays where a request's own work is small, or where several requests can share work.  Frames
    are valid only during a call.
    """

    def handle(
        self,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
        answer: EncodeResult,
    ) -> Sequence[HandlerResult] | None:
        """Handle a request that repeats an earlier one.

        Args:
            frame: the request.
            frames: the requests after it; those that are handled as well are removed from the left.
            answer: makes the response to one request.

        Returns:
            The responses to the handled requests, the same as after decoding them; None if the
            request repeats no earlier one, and has to be decoded.
        """

    def learn(self, context: RequestContext, frame: memoryview, request: Any) -> None:
        """Remember a request that was decoded and handled, because it may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHandler:
    """One API of a node.

    Args:
        items_max: the most items that all arrays of a request (and its unknown tagged fields) may
            have together.
        handle: called synchronously on receipt, in request order.  Buffers inside the request are
            valid only during that call, or until its slices have ended.  Raises ``KafkaError`` to
            refuse the request.
        repeats: handles repeated requests before they are decoded.
        rewrite_body: returns the bytes to decode in place of the received ones.
        encode: replaces the generic encoder.
        error_response: makes the response for a refusal, or None for no response.  It may be left
            out if the response has an ``error_code`` of its own.
        keep: returns the part of a request that ``error_response`` needs if the response comes
            later.  Without it, a waiting response holds the receive buffer of its request.
        unsupported: answers versions outside the range.  Without it the connection is closed, as in
            Kafka.
        advertised_min: a lower version to advertise than is served.
        advertise: whether ApiVersions reports the API.
        advertise_to_own_clients: whether ApiVersions reports it to sparklog's own clients, although
            not to others.
        members_only: whether only members of the cluster may use the API.
        needs_body: whether ``RequestContext.body`` is set.
    """

    api_key: int
    min_version: int
    max_version: int
    items_max: int = FEW_ITEMS
    handle: Callable[[RequestContext, Any], Handled]
    repeats: Repeats | None = None
    rewrite_body: Callable[[RequestHeader, memoryview], bytes | memoryview] | None = None
    encode: Callable[[RequestHeader, Any], EncodedResponse | Slices[EncodedResponse]] | None = None
    error_response: Callable[[Any, KafkaError], Any | Slices[Any]] | None = None
    keep: Callable[[Any], Any] | None = None
    unsupported: Callable[[RequestHeader], EncodedResponse] | None = None
    advertise: bool = True
    advertise_to_own_clients: bool = False
    advertised_min: int | None = None
    members_only: bool = False
    needs_body: bool = False
