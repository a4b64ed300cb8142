"""AwaitWork (key 20020): a spare supervisor asks for a broker to run; waits until there is one."""

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.driver.control_plane.spare_desk import SpareDesk
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import AwaitWorkRequest


def handler(desk: SpareDesk) -> ApiHandler:
    def handle(_context: RequestContext, request: AwaitWorkRequest) -> Handled:
        return desk.wait(request)

    return member_handler(AwaitWorkRequest, handle)
