"""DrainBrokers (key 20012): brokers give their replicas to the others, before they are stopped."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import DrainBrokersRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: DrainBrokersRequest) -> Handled:
        return decide(request)

    return member_handler(DrainBrokersRequest, handle)
