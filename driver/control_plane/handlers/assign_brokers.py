"""AssignBrokers (key 20006): which brokers the launcher has to start, and where they ran last."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import AssignBrokersRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AssignBrokersRequest) -> Handled:
        return decide(request)

    return member_handler(AssignBrokersRequest, handle)
