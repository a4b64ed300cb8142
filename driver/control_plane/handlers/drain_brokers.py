"""DrainBrokers (key 20012): moves all replicas of brokers to others, before these are stopped."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import DrainBrokersRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: DrainBrokersRequest) -> Handled:
        return decide(request)

    return member_handler(DrainBrokersRequest, handle)
