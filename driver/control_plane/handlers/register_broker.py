"""RegisterBroker (key 20002): a broker registers itself after every start."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import RegisterBrokerRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: RegisterBrokerRequest) -> Handled:
        return decide(request)

    return member_handler(RegisterBrokerRequest, handle)
