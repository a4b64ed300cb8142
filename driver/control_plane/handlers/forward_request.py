"""ForwardRequest (key 20010): a broker forwards a client's request that the controller decides on.

The inner request is handled as if the client had sent it to this node.  Its response, header
included, is sent back inside the outer response.  Only APIs that clients send to the controller are
accepted, so that a client cannot gain a member's rights through a forwarded request.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.errors import DecodeError, ErrorCode, FrameError, KafkaError
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.transport import (
    EncodedResponse,
    HandlerResult,
    ParkedResponse,
    PendingResponse,
    ServerConnection,
    SlicedResponse,
)
from sparklog.wire.protocol.codec import decode_request_header
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from sparklog.wire.protocol.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.protocol.messages.create_topics import CreateTopicsRequest
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.private import ForwardRequestRequest, ForwardRequestResponse

Redispatch = Callable[[ServerConnection, memoryview], HandlerResult]

FORWARDED: Final = frozenset(
    request.API_KEY
    for request in (
        CreateTopicsRequest,
        DeleteTopicsRequest,
        CreatePartitionsRequest,
        IncrementalAlterConfigsRequest,
        AlterConfigsRequest,
        ElectLeadersRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        UnregisterBrokerRequest,
    )
)


def handler(redispatch: Redispatch) -> ApiHandler:
    def handle(context: RequestContext, request: ForwardRequestRequest) -> Handled:
        frame = memoryview(request.request)
        try:
            api_key = decode_request_header(frame)[0].api_key
            if api_key not in FORWARDED:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {api_key} is not forwarded")
            result = redispatch(context.connection, frame)
        except (DecodeError, FrameError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the inner request: {error}") from error
        if isinstance(result, SlicedResponse):
            return _forward_slices(result)
        return _forwarded(result)

    return member_handler(ForwardRequestRequest, handle)


def _forward_slices(answer: SlicedResponse) -> Slices[Handled]:
    try:
        result = yield from answer.slices
    except (DecodeError, FrameError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the inner request: {error}") from error
    return _forwarded(result)


def _forwarded(result: HandlerResult) -> Handled:
    assert not isinstance(result, PendingResponse), "only brokers give answers that way"
    if isinstance(result, ParkedResponse):
        return _finish(result)
    assert not isinstance(result, SlicedResponse), "slices end with an answer"
    return _wrap(result)


async def _finish(parked: ParkedResponse) -> Slices[ForwardRequestResponse]:
    future = asyncio.ensure_future(parked.awaitable)
    await asyncio.wait((future,))
    return _finished(parked.finish(future))


def _finished(answer: EncodedResponse | SlicedResponse | None) -> Slices[ForwardRequestResponse]:
    reply: EncodedResponse | None
    if isinstance(answer, SlicedResponse):
        reply = yield from answer.slices
    else:
        reply = answer
    return _wrap(reply)


def _wrap(reply: EncodedResponse | None) -> ForwardRequestResponse:
    parts = reply or ()
    buffers = [part for part in parts if isinstance(part, (bytes, bytearray, memoryview))]
    assert len(buffers) == len(parts), "answers of the controller hold no file regions"
    return ForwardRequestResponse(response=b"".join(buffers))
