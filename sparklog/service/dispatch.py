"""From a frame to a handler and back: header, version, authority, decoding, errors, encoding.

Owns: the only place where errors become bytes.  Must not know sockets, event loops, or what any
API means.
"""

import dataclasses
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sparklog.errors import DecodeError, ErrorCode, FrameError, KafkaError
from sparklog.service import api_versions
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.transport import Answer, Parked, Reply, ServerConnection
from sparklog.wire.codec import (
    RequestHeader,
    decode_request,
    decode_request_header,
    encode_response,
    response_type,
)
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.private import MemberHelloRequest, MemberProofRequest

__all__ = ["ApiHandler", "Dispatcher", "RequestContext"]

logger = logging.getLogger(__name__)

#: What a member asks before it has proved to be one.
_DOOR_KEYS: Final = frozenset(
    message.API_KEY for message in (ApiVersionsRequest, MemberHelloRequest, MemberProofRequest)
)


class Dispatcher:
    """The transport's handler for a set of APIs.  ApiVersions is added by itself.

    ``requests`` counts by api key, ``errors`` the unforeseen failures, ``undecodable`` the frames
    that cost a connection.
    """

    def __init__(self, handlers: Iterable[ApiHandler]) -> None:
        self._handlers: dict[int, ApiHandler] = {}
        self.requests: Counter[int] = Counter()
        self.errors = 0
        self.undecodable = 0
        for handler in (api_versions.handler(self.advertised), *handlers):
            assert handler.api_key not in self._handlers, f"two handlers for {handler.api_key}"
            self._handlers[handler.api_key] = _with_error_response(handler)

    def advertised(self) -> Mapping[int, tuple[int, int]]:
        """The version ranges that ApiVersions shows, by api key."""
        return {
            h.api_key: (
                h.min_version if h.advertised_min is None else h.advertised_min,
                h.max_version,
            )
            for h in sorted(self._handlers.values(), key=lambda handler: handler.api_key)
            if h.advertise
        }

    def __call__(self, connection: ServerConnection, frames: deque[memoryview]) -> Sequence[Answer]:
        """Handle the first request, maybe with some of those behind it.

        Raises DecodeError or FrameError for what cannot be answered; the transport closes the
        connection.
        """
        frame = frames.popleft()
        try:
            header, offset = decode_request_header(frame)
            handler = self._handlers.get(header.api_key)
            if handler is None:
                raise FrameError(f"api key {header.api_key} is not served here")
            if not handler.min_version <= header.api_version <= handler.max_version:
                return (_unsupported(handler, header),)
            context = RequestContext(header=header, connection=connection)
            answers = self._repeated(handler, context, frame, frames)
            if answers is not None:
                return answers
            request = (handler.decode or decode_request)(header, frame[offset:])
        except (DecodeError, FrameError):
            self.undecodable += 1
            raise
        self.requests[header.api_key] += 1
        response = self._handle(handler, context, request)
        if handler.repeats is not None:
            handler.repeats.learn(context, frame, request)
        return (self._answer(handler, header, request, response),)

    def at_door(self, connection: ServerConnection, frames: deque[memoryview]) -> Sequence[Answer]:
        """The transport's door: nothing but a member's proof is handled.

        Raises FrameError for everything else; the transport closes the connection.
        """
        api_key = decode_request_header(frames[0])[0].api_key
        if api_key not in _DOOR_KEYS:
            raise FrameError("too many connections: only members of the cluster may still connect")
        answers = self(connection, frames)
        if connection.member:
            connection.welcome()
        return answers

    def _repeated(
        self,
        handler: ApiHandler,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
    ) -> Sequence[Answer] | None:
        """The answers to requests that repeat earlier ones of the connection, if this one does."""
        if handler.repeats is None:
            return None
        try:
            answer = partial(self._answer, handler)
            answers = handler.repeats.handle(context, frame, frames, answer)
        except Exception:
            self.errors += 1  # how many answers are owed is not known: the connection ends
            raise
        if answers is not None:
            self.requests[handler.api_key] += len(answers)
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
        self, handler: ApiHandler, header: RequestHeader, request: Any, response: Handled
    ) -> Answer:
        if response is None:
            return None
        if hasattr(response, "__await__"):
            kept = request if handler.keep is None else handler.keep(request)
            return Parked(response, partial(self._finish, handler, header, kept))
        return _encode(handler, header, response)

    def _finish(
        self, handler: ApiHandler, header: RequestHeader, request: Any, future: Any
    ) -> Reply | None:
        if future.cancelled():
            error: BaseException | None = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the node is stopping"
            )
        else:
            error = future.exception()
        response = future.result() if error is None else self._refusal(handler, request, error)
        return None if response is None else _encode(handler, header, response)

    def _refusal(self, handler: ApiHandler, request: Any, error: BaseException) -> Any:
        if not isinstance(error, KafkaError):
            self.errors += 1
            logger.error("request of api key %d failed", handler.api_key, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert handler.error_response is not None
        return handler.error_response(request, error)


def _unsupported(handler: ApiHandler, header: RequestHeader) -> Reply:
    if handler.unsupported is not None:
        return handler.unsupported(header)
    raise FrameError(
        f"api key {header.api_key} v{header.api_version} is not served here, "
        f"v{handler.min_version} to v{handler.max_version} are (client {header.client_id!r})"
    )


def _encode(handler: ApiHandler, header: RequestHeader, response: Any) -> Reply:
    if handler.encode is not None:
        return handler.encode(header, response)
    payload = encode_response(header.api_key, header.api_version, response, header.correlation_id)
    return (payload,)


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
