"""UnregisterBroker (key 64) v0: unregisters a stopped broker without replicas (KIP-631)."""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.service.error_responses import refuse_unregister_broker
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: UnregisterBrokerRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=UnregisterBrokerRequest.API_KEY,
        min_version=UnregisterBrokerRequest.MIN_VERSION,
        max_version=UnregisterBrokerRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_unregister_broker,
    )
