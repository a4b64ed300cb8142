"""InitProducerId (key 22) v0-5: a new producer id for an idempotent producer.

Ids come from blocks that the controller allocates.  While the controller is away and the block is
used up, the response is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.

A request with a transactional id is for node 0 (NOT_COORDINATOR).
"""

from sparklog.executors.controller_link import ProducerIds
from sparklog.executors.handlers.not_transaction_coordinator import NOT_COORDINATOR
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.init_producer_id import (
    INIT_PRODUCER_ID_MAX_VERSION,
    check_init_producer_id,
    init_producer_id_refused,
)
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handler(producer_ids: ProducerIds) -> ApiHandler:
    async def answer() -> InitProducerIdResponse:
        return _response(await producer_ids.next())

    def handle(_context: RequestContext, request: InitProducerIdRequest) -> Handled:
        check_init_producer_id(request)
        if request.transactional_id is not None:
            raise NOT_COORDINATOR
        producer_id = producer_ids.take()
        return answer() if producer_id is None else _response(producer_id)

    return ApiHandler(
        api_key=InitProducerIdRequest.API_KEY,
        min_version=InitProducerIdRequest.MIN_VERSION,
        max_version=INIT_PRODUCER_ID_MAX_VERSION,
        handle=handle,
        error_response=init_producer_id_refused,
    )


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
