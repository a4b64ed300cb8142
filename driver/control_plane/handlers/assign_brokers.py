"""AssignBrokers (key 20006): the launcher asks which brokers to start, and where they were last."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import AssignBrokersRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AssignBrokersRequest) -> Handled:
        return decide(request)

    return member_handler(AssignBrokersRequest, handle)
