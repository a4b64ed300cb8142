"""StopNode (key 20008): a member asks for a clean stop, which begins after the response."""

from collections.abc import Callable

from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.private import StopNodeRequest, StopNodeResponse


def handler(stop: Callable[[str], None]) -> ApiHandler:
    """``stop`` takes the reason and returns at once."""

    def handle(_context: RequestContext, request: StopNodeRequest) -> StopNodeResponse:
        stop(request.reason)
        return StopNodeResponse()

    return ApiHandler(
        api_key=StopNodeRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )
