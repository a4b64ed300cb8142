"""What only the controller answers: changes of topics, settings, leaders, replicas and brokers,
and which replicas move (keys 19, 20, 33, 37, 43, 44, 45, 46, 64).

A broker passes them to the controller as they came and its answer back.  While the controller is
away everything is refused with NOT_CONTROLLER, which clients retry.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.errors import KafkaError
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.service.refusals import (
    refuse_alter_configs,
    refuse_create_partitions,
    refuse_create_topics,
    refuse_delete_topics,
    refuse_elect_leaders,
    refuse_listed_reassignments,
    refuse_reassignments,
    refuse_unregister_broker,
)
from sparklog.transport import Reply
from sparklog.wire.codec import (
    RequestHeader,
    decode_request,
    encode_response,
    request_header_bytes,
)
from sparklog.wire.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.schema import Request, Response

#: Request frame (header included) and its version -> response frame (header included).
Forward = Callable[[bytes, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forwarded:
    """The request as it came, checked, and as values."""

    frame: bytes
    request: Any


def handlers(forward: Forward) -> Sequence[ApiHandler]:
    """``forward`` raises KafkaError when the controller cannot be asked."""
    return tuple(
        _handler(forward, request_type, refuse)
        for request_type, refuse in (
            (CreateTopicsRequest, refuse_create_topics),
            (DeleteTopicsRequest, refuse_delete_topics),
            (CreatePartitionsRequest, refuse_create_partitions),
            (IncrementalAlterConfigsRequest, refuse_alter_configs),
            (AlterConfigsRequest, refuse_alter_configs),
            (ElectLeadersRequest, refuse_elect_leaders),
            (AlterPartitionReassignmentsRequest, refuse_reassignments),
            (ListPartitionReassignmentsRequest, refuse_listed_reassignments),
            (UnregisterBrokerRequest, refuse_unregister_broker),
        )
    )


def _handler(
    forward: Forward,
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Response],
) -> ApiHandler:
    def handle(context: RequestContext, forwarded: _Forwarded) -> Awaitable[bytes]:
        return forward(forwarded.frame, context.version)

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        handle=handle,
        decode=_decode,
        encode=_encode,
        error_response=lambda forwarded, error: refuse(forwarded.request, error),
    )


def _decode(header: RequestHeader, body: memoryview) -> _Forwarded:
    """Decoded here too: what cannot be decoded must not cost the link to the controller."""
    start = request_header_bytes(
        header.api_key, header.api_version, header.correlation_id, header.client_id
    )
    return _Forwarded(frame=start + bytes(body), request=decode_request(header, body))


def _encode(header: RequestHeader, response: bytes | Response) -> Reply:
    if isinstance(response, bytes):
        return (response,)
    return (encode_response(header.api_key, header.api_version, response, header.correlation_id),)
