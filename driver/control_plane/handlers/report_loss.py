"""ReportLoss (key 20007): fences brokers at once whose death was observed.

"Loss" is the death of a broker's process here, as in the name of the message.
"""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import ReportLossRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: ReportLossRequest) -> Handled:
        return decide(request)

    return member_handler(ReportLossRequest, handle)
