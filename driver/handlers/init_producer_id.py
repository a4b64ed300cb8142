"""InitProducerId (key 22) v0-6: a fresh id for an idempotent producer.

Transactional ids are refused until there is a transaction coordinator.
"""

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.transactions import refuse_transactional_id
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: InitProducerIdRequest) -> Handled:
        refuse_transactional_id(request.transactional_id)
        return decide(request)

    return ApiHandler(
        api_key=InitProducerIdRequest.API_KEY,
        min_version=InitProducerIdRequest.MIN_VERSION,
        max_version=InitProducerIdRequest.MAX_VERSION,
        handle=handle,
    )
