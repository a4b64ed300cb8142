"""BrokerHeartbeat (key 20003): keeps a broker's session, or ends it cleanly."""

from sparklog.driver.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.private import BrokerHeartbeatRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: BrokerHeartbeatRequest) -> Handled:
        return decide(request)

    return member_handler(BrokerHeartbeatRequest, handle)
