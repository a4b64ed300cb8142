"""The shape of a request handler.

Owns: what a handler is told about a request, what it declares about its API, and the bounds of the
work on one request.  Must not know how frames arrive or in which process it runs.

Every handler keeps to one rule: the work of a request is bounded before it begins, and no piece of
it holds the loop for long.

* ``items_max`` bounds the items that a request may have; a request with more costs its connection.
* What an API does per item is done once for a thing that is named several times, or refused, as
  Kafka does.  So the work is bounded by what the request names and by what the cluster has.
* Work on a few items is done at receipt.  Work on more is a generator (``sparklog.slices``): the
  loop serves other connections between its slices.  That goes for ``handle``, ``error_response``,
  ``encode`` and for the result of an awaitable alike; dispatch decodes and encodes in slices, too.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from sparklog.errors import KafkaError
from sparklog.slices import Slices
from sparklog.transport import Answer, Reply, ServerConnection
from sparklog.wire.protocol.codec import MAX_REQUEST_ITEMS, RequestHeader

#: Items of a request that names no topics: none of Kafka's has any, newer clients may add fields.
FEW_ITEMS: Final = 100
#: Items of a request about topics and partitions: those of a cluster of the largest size.
MANY_ITEMS: Final = MAX_REQUEST_ITEMS


NO_BODY: Final = memoryview(b"")


class RequestContext(NamedTuple):
    """Who asks, in which version; where a handler ``needs_body``, the bytes behind the header."""

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


#: A response, or an awaitable of one, or slices that end with one of these, or None when no answer
#: is owed (Produce with acks=0).  A future costs less than a coroutine: it needs no task.
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
    are valid only during that call, or until its slices have ended.  It raises ``KafkaError`` to
    refuse; ``error_response`` turns that into the API's answer (None: no answer is owed); it may be
    left out when the response has an ``error_code`` of its own.  ``keep`` gives what of a request
    ``error_response`` needs if the answer comes later; without it, an answer that waits holds the
    receive buffer of its request.  ``repeats`` is asked before a request is decoded.  ``mend_body``
    gives the bytes to decode in place of those that came, and ``encode`` replaces the generic
    encoder; ``advertised_min`` shows a lower version to clients than is served; ``unsupported``
    answers versions outside the range (without it the connection is closed, as Kafka does).

    ``items_max`` is the most items that all arrays of a request (and its unknown tagged fields) may
    have together.
    """

    api_key: int
    min_version: int
    max_version: int
    items_max: int = FEW_ITEMS
    handle: Callable[[RequestContext, Any], Handled]
    repeats: Repeats | None = None
    mend_body: Callable[[RequestHeader, memoryview], bytes | memoryview] | None = None
    encode: Callable[[RequestHeader, Any], Reply | Slices[Reply]] | None = None
    error_response: Callable[[Any, KafkaError], Any | Slices[Any]] | None = None
    keep: Callable[[Any], Any] | None = None
    unsupported: Callable[[RequestHeader], Reply] | None = None
    advertise: bool = True
    advertised_min: int | None = None
    members_only: bool = False
    needs_body: bool = False
