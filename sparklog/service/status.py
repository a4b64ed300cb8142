"""NodeStatus (key 20009): a node's counters as a JSON object.

Any client may ask, and gets the numbers.  Members also get what is not a number: paths, ids, errors
and the names of topics.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.private import NodeStatusRequest, NodeStatusResponse

#: Units of one status, which a broker sums over all its partitions.
_UNITS: Final = 1_000


def handler(status: Callable[[], Mapping[str, Any]]) -> ApiHandler:
    """``status`` returns the counters, as values that JSON can represent."""

    def handle(context: RequestContext, _request: NodeStatusRequest) -> NodeStatusResponse:
        context.connection.units_spent += _UNITS
        found = status()
        if not context.member:
            found = {name: value for name, value in found.items() if type(value) is int}
        return NodeStatusResponse(status=json.dumps(found).encode())

    return ApiHandler(
        api_key=NodeStatusRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        advertise_to_own_clients=True,
    )
