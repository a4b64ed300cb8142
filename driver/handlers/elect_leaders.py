"""ElectLeaders (key 43) v0-2: preferred leaders (KIP-183), or unclean ones (KIP-460), on demand."""

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_elect_leaders
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: ElectLeadersRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=ElectLeadersRequest.API_KEY,
        min_version=ElectLeadersRequest.MIN_VERSION,
        max_version=ElectLeadersRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_elect_leaders,
    )
