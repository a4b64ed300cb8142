"""ReportLogEnds (key 20011): the log ends of a broker's replicas of leaderless partitions."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import ReportLogEndsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: ReportLogEndsRequest) -> Handled:
        return decide(request)

    return member_handler(ReportLogEndsRequest, handle)
