"""StopNode (key 20008): the launcher asks the control plane to end cleanly."""

from collections.abc import Callable

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.private import StopNodeRequest, StopNodeResponse


def handler(stop: Callable[[str], None]) -> ApiHandler:
    def handle(context: RequestContext, request: StopNodeRequest) -> StopNodeResponse:
        stop(request.reason or f"asked by {context.connection.peer}")
        return StopNodeResponse()

    return member_handler(StopNodeRequest, handle)
