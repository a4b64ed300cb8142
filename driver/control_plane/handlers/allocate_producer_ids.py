"""AllocateProducerIds (key 20005): a block of producer ids for a broker."""

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import AllocateProducerIdsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AllocateProducerIdsRequest) -> Handled:
        return decide(request)

    return member_handler(AllocateProducerIdsRequest, handle)
