"""Requests that only the controller answers (keys 19, 20, 33, 37, 43, 44, 45, 46, 64).

They change topics, settings, leaders, replicas and brokers, or list which replicas move.  A broker
forwards such a request to the controller unchanged, and returns the controller's response.  While
the controller is away, the requests are refused with NOT_CONTROLLER, which clients retry.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sparklog.errors import KafkaError
from sparklog.service.error_responses import (
    refuse_alter_configs,
    refuse_create_partitions,
    refuse_create_topics,
    refuse_delete_topics,
    refuse_elect_leaders,
    refuse_listed_reassignments,
    refuse_reassignments,
    refuse_unregister_broker,
)
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices
from sparklog.transport import EncodedResponse
from sparklog.wire.protocol.codec import (
    RequestHeader,
    encode_response_in_slices,
    request_header_bytes,
)
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
from sparklog.wire.protocol.schema import Request, Response

#: Request frame (header included) and its version -> response frame (header included).
Forward = Callable[[bytes, int], Awaitable[bytes]]


def handlers(forward: Forward) -> Sequence[ApiHandler]:
    """The handlers.  ``forward`` raises KafkaError when the controller cannot be reached."""
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
    refuse: Callable[[Any, KafkaError], Response | Slices[Response]],
) -> ApiHandler:
    def handle(context: RequestContext, _request: Any) -> Awaitable[bytes]:
        # The request was decoded here too: an undecodable request would cost the connection to
        # the controller.
        header = context.header
        start = request_header_bytes(
            header.api_key, header.api_version, header.correlation_id, header.client_id
        )
        return forward(start + bytes(context.body), context.version)

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        items_max=MANY_ITEMS,
        needs_body=True,
        handle=handle,
        encode=_encode,
        error_response=refuse,
    )


def _encode(
    header: RequestHeader, response: bytes | Response
) -> EncodedResponse | Slices[EncodedResponse]:
    """The controller's response, unchanged, or a refusal of this node."""
    return (response,) if isinstance(response, bytes) else _encoded(header, response)


def _encoded(header: RequestHeader, response: Response) -> Slices[EncodedResponse]:
    version, correlation_id = header.api_version, header.correlation_id
    return ((yield from encode_response_in_slices(version, response, correlation_id)),)
