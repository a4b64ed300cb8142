"""DescribeCluster (key 60) v0-2: the nodes that Metadata lists, without topics.

From v1 the endpoint type must be that of the node that is asked (KIP-919).  From v2 fenced brokers
are listed on request (KIP-1073).  Deviation: all operations are reported as authorized, because
there are no ACLs.
"""

from collections.abc import Callable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.service.metadata import CLUSTER_OPERATIONS
from sparklog.types import CONTROLLER_NODE_ID, NO_NODE
from sparklog.wire.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handler(image: Callable[[], ClusterImage]) -> ApiHandler:
    def handle(_context: RequestContext, request: DescribeClusterRequest) -> object:
        if request.endpoint_type == _CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this address is for clients of brokers"
            )
        if request.endpoint_type != _BROKERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"endpoint type {request.endpoint_type} is unknown",
            )
        return _response(image(), request)

    return ApiHandler(
        api_key=DescribeClusterRequest.API_KEY,
        min_version=DescribeClusterRequest.MIN_VERSION,
        max_version=DescribeClusterRequest.MAX_VERSION,
        handle=handle,
    )


def _response(image: ClusterImage, request: DescribeClusterRequest) -> DescribeClusterResponse:
    listed = [
        broker
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
        if broker.registered and (request.include_fenced_brokers or not broker.fenced)
    ]
    nodes = [
        DescribeClusterBroker(
            broker_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack or None,
            is_fenced=broker.fenced,
        )
        for broker in listed
    ]
    controller = image.controller
    if controller.port:
        nodes.append(
            DescribeClusterBroker(
                broker_id=CONTROLLER_NODE_ID, host=controller.host, port=controller.port
            )
        )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=CONTROLLER_NODE_ID if controller.port else NO_NODE,
        brokers=tuple(nodes),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else -(2**31)
        ),
    )
