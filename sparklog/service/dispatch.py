"""The dispatcher: from a frame to a handler and back, with versions, authorization and errors.

Owns: the only place where errors become bytes, and the rule about how long a request may block the
event loop (see ``service.handler``).  Must not know sockets, event loops, or what any API means.

A request of few items is decoded, handled and answered on receipt.  The response is made in slices
in two cases: the request has more than ``ITEMS_AT_ONCE`` items, or the handler's slices have not
ended after ``UNITS_AT_ONCE``.  The transport makes a sliced response by turns with all other work
of the node, and handles no further request of that connection until the response is complete.
"""

import dataclasses
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sparklog.errors import DecodeError, ErrorCode, FrameError, KafkaError
from sparklog.service import api_versions
from sparklog.service.handler import NO_BODY, ApiHandler, Handled, Repeats, RequestContext
from sparklog.slices import ITEMS_AT_ONCE, Slices, are_slices
from sparklog.transport import (
    EncodedResponse,
    HandlerResult,
    ParkedResponse,
    PendingResponse,
    ServerConnection,
    SlicedResponse,
)
from sparklog.wire.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_request_in_slices,
    encode_response,
    encode_response_in_slices,
    response_type,
)
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.primitives import TooManyItemsError
from sparklog.wire.protocol.private import MemberHelloRequest, MemberProofRequest

__all__ = ["ApiHandler", "Dispatcher", "RequestContext"]

logger = logging.getLogger(__name__)

#: The APIs that a member uses before it has proved its membership.
_DOOR_KEYS: Final = frozenset(
    message.API_KEY for message in (ApiVersionsRequest, MemberHelloRequest, MemberProofRequest)
)


#: Units of work (see ``sparklog.slices``) that a request may take on receipt.
UNITS_AT_ONCE: Final = 2_000
#: Units of the smallest request, and of a request that repeats another one.
_REQUEST_UNITS: Final = 40
_REPEAT_UNITS: Final = 15
#: Two to this power bytes of a frame cost one unit, for their checksum and their way to the disk.
_BYTES_PER_UNIT_SHIFT: Final = 10


class Dispatcher:
    """The transport's handler for a set of APIs; ApiVersions is added automatically.

    ``requests`` counts requests by api key, ``errors`` the unexpected failures, and ``undecodable``
    the frames that could not be decoded and ended their connection.
    """

    def __init__(self, handlers: Iterable[ApiHandler]) -> None:
        self._handlers: dict[int, ApiHandler] = {}
        self.requests: Counter[int] = Counter()
        self.errors = 0
        self.undecodable = 0
        for handler in (api_versions.handler(self.advertised), *handlers):
            assert handler.api_key not in self._handlers, f"two handlers for {handler.api_key}"
            self._handlers[handler.api_key] = _with_error_response(handler)

    def advertised(self, to_own_client: bool = False) -> Mapping[int, tuple[int, int]]:
        """The version ranges that ApiVersions reports, by api key."""
        return {
            h.api_key: (
                h.min_version if h.advertised_min is None else h.advertised_min,
                h.max_version,
            )
            for h in sorted(self._handlers.values(), key=lambda handler: handler.api_key)
            if h.advertise or (to_own_client and h.advertise_to_own_clients)
        }

    def __call__(
        self, connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        """Handle the first request, and possibly some of the requests after it.

        Args:
            frames: the received requests; those that are handled are removed from the left.

        Raises:
            DecodeError, FrameError: the request cannot be answered.  The transport then closes the
                connection.
        """
        frame = frames.popleft()
        connection.units_spent += _REQUEST_UNITS + (len(frame) >> _BYTES_PER_UNIT_SHIFT)
        try:
            header, offset = decode_request_header(frame)
            handler = self._handlers.get(header.api_key)
            if handler is None:
                raise FrameError(f"api key {header.api_key} is not served here")
            if not handler.min_version <= header.api_version <= handler.max_version:
                return (_unsupported(handler, header),)
            context = RequestContext(header, connection, NO_BODY)
            if handler.repeats is not None:
                answers = self._repeated(handler, handler.repeats, context, frame, frames)
                if answers is not None:
                    return answers
            body = frame[offset:]
            if handler.needs_body:
                context = context._replace(body=body)
            rewritten = body if handler.rewrite_body is None else handler.rewrite_body(header, body)
            items_max = handler.items_max
            try:
                at_once = items_max if items_max < ITEMS_AT_ONCE else ITEMS_AT_ONCE
                request = decode_request(header, rewritten, at_once)
            except TooManyItemsError:
                if items_max <= ITEMS_AT_ONCE:
                    raise
                return (self._long(handler, context, rewritten),)
        except (DecodeError, FrameError):
            self.undecodable += 1
            raise
        self.requests[header.api_key] += 1
        response = self._handle(handler, context, request)
        if handler.repeats is not None:
            handler.repeats.learn(context, frame, request)
        answer = self._answer(handler, header, request, response, connection)
        if isinstance(answer, SlicedResponse):
            answer = dataclasses.replace(answer, request_bytes=len(frame))
        return (answer,)

    def _long(
        self, handler: ApiHandler, context: RequestContext, body: bytes | memoryview
    ) -> SlicedResponse:
        """The long answer to a request of many items.

        The request's bytes are copied, because the frame does not stay valid.
        """
        owned = memoryview(bytes(body))
        if handler.needs_body:
            context = context._replace(body=owned)
        return SlicedResponse(self._decoded(handler, context, owned), len(owned))

    def _decoded(
        self, handler: ApiHandler, context: RequestContext, body: memoryview
    ) -> Slices[HandlerResult]:
        """Decode, handle and answer a request of many items, in slices."""
        header = context.header
        try:
            request = yield from decode_request_in_slices(header, body, handler.items_max)
        except DecodeError:
            self.undecodable += 1
            raise
        self.requests[header.api_key] += 1
        response = self._handle(handler, context, request)
        return (yield from self._answer_in_slices(handler, header, request, response))

    def _answer_in_slices(
        self, handler: ApiHandler, header: RequestHeader, request: Any, response: Handled
    ) -> Slices[HandlerResult]:
        """The response to a request whose response is made in slices."""
        try:
            while are_slices(response):
                response = yield from response
        except Exception as error:
            response = self._refusal(handler, request, error)
            while are_slices(response):
                response = yield from response
        if handler.keep is not None and hasattr(response, "__await__"):
            request = handler.keep(request)
            if are_slices(request):
                request = yield from request
            waited_for: Any = response
            return ParkedResponse(waited_for, partial(self._finish, handler, header, request))
        answer = self._answer(handler, header, request, response)
        return (yield from answer.slices) if isinstance(answer, SlicedResponse) else answer

    def handle_over_limit(
        self, connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        """The transport's ``over_limit_handler``: nothing but a member's proof is handled.

        Raises:
            FrameError: any other request.  The transport then closes the connection.
        """
        api_key = decode_request_header(frames[0])[0].api_key
        if api_key not in _DOOR_KEYS:
            raise FrameError("too many connections: only members of the cluster may still connect")
        answers = self(connection, frames)
        if connection.member:
            connection.admit_member()
        return answers

    def _repeated(
        self,
        handler: ApiHandler,
        repeats: Repeats,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
    ) -> Sequence[HandlerResult] | None:
        """The responses if the request repeats an earlier one of the connection; otherwise None."""
        try:
            answer = partial(self._answer, handler)
            answers = repeats.handle(context, frame, frames, answer)
        except Exception:
            self.errors += 1  # the number of missing answers is unknown, so the connection ends
            raise
        if answers is not None:
            self.requests[handler.api_key] += len(answers)
            context.connection.units_spent += _REPEAT_UNITS * len(answers)
        return answers

    def _handle(self, handler: ApiHandler, context: RequestContext, request: Any) -> Handled:
        try:
            if handler.members_only and not context.member:
                raise KafkaError(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    "only members of the cluster may ask this",
                )
            return handler.handle(context, request)
        except Exception as error:
            return self._refusal(handler, request, error)

    def _answer(
        self,
        handler: ApiHandler,
        header: RequestHeader,
        request: Any,
        response: Handled,
        connection: ServerConnection | None = None,
    ) -> HandlerResult:
        """The response to a request; the units spent on receipt are charged to ``connection``."""
        if response is None:
            return None
        if are_slices(response):
            return _at_once(self._answer_in_slices(handler, header, request, response), connection)
        if hasattr(response, "__await__"):
            kept = request if handler.keep is None else handler.keep(request)
            return ParkedResponse(response, partial(self._finish, handler, header, kept))
        return _encode(handler, header, response)

    def _finish(
        self, handler: ApiHandler, header: RequestHeader, request: Any, future: Any
    ) -> EncodedResponse | SlicedResponse | None:
        if future.cancelled():
            error: BaseException | None = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the node is stopping"
            )
        else:
            error = future.exception()
        response = future.result() if error is None else self._refusal(handler, request, error)
        answer = self._answer(handler, header, request, response)
        assert not isinstance(answer, ParkedResponse | PendingResponse), (
            "nobody waits twice for a response"
        )
        return answer

    def _refusal(self, handler: ApiHandler, request: Any, error: BaseException) -> Any:
        if not isinstance(error, KafkaError):
            self.errors += 1
            logger.error("request of api key %d failed", handler.api_key, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert handler.error_response is not None
        return handler.error_response(request, error)


def _unsupported(handler: ApiHandler, header: RequestHeader) -> EncodedResponse:
    if handler.unsupported is not None:
        return handler.unsupported(header)
    raise FrameError(
        f"api key {header.api_key} v{header.api_version} is not served here, "
        f"v{handler.min_version} to v{handler.max_version} are (client {header.client_id!r})"
    )


def _encode(
    handler: ApiHandler, header: RequestHeader, response: Any
) -> EncodedResponse | SlicedResponse:
    if handler.encode is not None:
        reply: Any = handler.encode(header, response)
        return SlicedResponse(reply) if are_slices(reply) else reply
    version, correlation_id = header.api_version, header.correlation_id
    try:
        return (encode_response(header.api_key, version, response, correlation_id, ITEMS_AT_ONCE),)
    except TooManyItemsError:
        return SlicedResponse(_encoded(version, correlation_id, response))


def _encoded(version: int, correlation_id: int, response: Any) -> Slices[EncodedResponse]:
    return ((yield from encode_response_in_slices(version, response, correlation_id)),)


def _at_once(slices: Slices[HandlerResult], connection: ServerConnection | None) -> HandlerResult:
    """The response, if the slices end within ``UNITS_AT_ONCE``; otherwise a sliced response."""
    units = UNITS_AT_ONCE
    try:
        while units > 0:
            spent = next(slices)
            units -= spent
            if connection is not None:
                connection.units_spent += spent
    except StopIteration as end:
        answer: HandlerResult = end.value
        return answer
    return SlicedResponse(slices)


def _with_error_response(handler: ApiHandler) -> ApiHandler:
    if handler.error_response is not None:
        return handler
    message_type = response_type(handler.api_key)
    names = {field.name for field in dataclasses.fields(message_type)}  # type: ignore[arg-type]
    assert "error_code" in names, f"{message_type.__name__} needs an error_response"

    def error_response(_request: Any, error: KafkaError) -> Any:
        values: dict[str, Any] = {"error_code": int(error.code)}
        if "error_message" in names:
            values["error_message"] = error.message or error.code.name
        return message_type(**values)

    return dataclasses.replace(handler, error_response=error_response)
