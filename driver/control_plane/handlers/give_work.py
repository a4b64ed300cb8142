"""GiveWork (key 20021): the launcher gives a spare supervisor a broker to run."""

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.driver.control_plane.spare_desk import SpareDesk
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import GiveWorkRequest


def handler(desk: SpareDesk) -> ApiHandler:
    def handle(_context: RequestContext, request: GiveWorkRequest) -> Handled:
        return desk.give(request)

    return member_handler(GiveWorkRequest, handle)
