"""Heartbeats that repeat the last one of their connection.

Owns: the last heartbeat of each connection, and the response to its repetition.  Must not know when
a session ends.

A member sends the same heartbeat until its generation ends; only the correlation id differs.  Such
a heartbeat is neither decoded nor decided on: the session is restarted, and the response is the
same.  Whenever the member has something to learn (a rebalance, an error), the heartbeat is handled
as any other request.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from sparklog.errors import KafkaError
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.service.handler import EncodeResult, RequestContext
from sparklog.transport import HandlerResult
from sparklog.wire.protocol.codec import encode_response
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

#: Bytes of a heartbeat that is remembered; names are shorter.
FRAME_BYTES_MAX: Final = 1024

_STATE_KEY: Final = "heartbeat"
#: The offset behind api key, version and correlation id.
_CORRELATION_END: Final = 8
_CORRELATION_ID: Final = struct.Struct(">i")


class _LastHeartbeat(NamedTuple):
    """``rest`` and ``response_rest`` are what follows the correlation id of request and response.

    The version of a request decides how long its parts are, so equal bytes of another version could
    mean something else.
    """

    version: int
    rest: bytes
    request: HeartbeatRequest
    response_rest: bytes


class RepeatedHeartbeat:
    """The ``Repeats`` of Heartbeat."""

    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    def learn(self, context: RequestContext, frame: memoryview, request: HeartbeatRequest) -> None:
        """See ``Repeats``."""
        if len(frame) > FRAME_BYTES_MAX or not request.group_id:
            return
        response = encode_response(HeartbeatResponse, context.version, HeartbeatResponse(), 0)
        context.connection.state[_STATE_KEY] = _LastHeartbeat(
            version=context.version,
            rest=bytes(frame[_CORRELATION_END:]),
            request=request,
            response_rest=response[_CORRELATION_ID.size :],
        )

    def handle(
        self,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
        answer: EncodeResult,
    ) -> Sequence[HandlerResult] | None:
        """See ``Repeats``."""
        del frames, answer  # a member has one heartbeat on the way
        last: _LastHeartbeat | None = context.connection.state.get(_STATE_KEY)
        if last is None or frame[_CORRELATION_END:] != last.rest:
            return None
        header = context.header
        if header.api_version != last.version:
            return None
        try:
            response = self._groups.answer(last.request.group_id, last.request)
        except KafkaError:
            return None
        if response is None:
            return None
        return ((_CORRELATION_ID.pack(header.correlation_id) + last.response_rest,),)
