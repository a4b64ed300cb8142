"""NodeStatus (key 20009): a node's counters as a JSON object, for members."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.private import NodeStatusRequest, NodeStatusResponse


def handler(status: Callable[[], Mapping[str, Any]]) -> ApiHandler:
    """``status`` returns the counters, as values that JSON can represent."""

    def handle(_context: RequestContext, _request: NodeStatusRequest) -> NodeStatusResponse:
        return NodeStatusResponse(status=json.dumps(status()).encode())

    return ApiHandler(
        api_key=NodeStatusRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )
