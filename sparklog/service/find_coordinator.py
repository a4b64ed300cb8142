"""FindCoordinator (key 10) v0-6: there are no coordinators yet.

Every key is answered with COORDINATOR_NOT_AVAILABLE, which clients retry.  The API is served
because librdkafka sends lz4 only to brokers that advertise it.
"""

from typing import Final

from sparklog.errors import ErrorCode
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import NO_NODE
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_MESSAGE: Final = "consumer groups and transactions are not available; assign partitions instead"
_NO_PORT: Final = -1


def handler() -> ApiHandler:
    return ApiHandler(
        api_key=FindCoordinatorRequest.API_KEY,
        min_version=FindCoordinatorRequest.MIN_VERSION,
        max_version=FindCoordinatorRequest.MAX_VERSION,
        handle=_handle,
    )


def _handle(_context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message=_MESSAGE,
        node_id=NO_NODE,
        port=_NO_PORT,
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=NO_NODE,
                port=_NO_PORT,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=_MESSAGE,
            )
            for key in request.coordinator_keys
        ),
    )
