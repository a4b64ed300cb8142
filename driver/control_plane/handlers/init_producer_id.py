"""InitProducerId (key 22) v0-5: a new producer id for an idempotent producer.

Transactional ids are refused until there is a transaction coordinator.
"""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.transactions import (
    INIT_PRODUCER_ID_MAX_VERSION,
    check_init_producer_id,
    init_producer_id_refused,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: InitProducerIdRequest) -> Handled:
        check_init_producer_id(request)
        return decide(request)

    return ApiHandler(
        api_key=InitProducerIdRequest.API_KEY,
        min_version=InitProducerIdRequest.MIN_VERSION,
        max_version=INIT_PRODUCER_ID_MAX_VERSION,
        handle=handle,
        error_response=init_producer_id_refused,
    )
