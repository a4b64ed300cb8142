"""InitProducerId (key 22) v0-6: a fresh producer id for an idempotent producer.

Ids come from blocks that the controller hands out; while it is away and the block is used up the
answer is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.

Deviation: transactional ids are refused until there is a transaction coordinator.
"""

from sparklog.errors import KafkaError
from sparklog.executors.producer_ids import ProducerIds
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.transactions import refuse_transactional_id
from sparklog.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handler(producer_ids: ProducerIds) -> ApiHandler:
    async def answer() -> InitProducerIdResponse:
        return _response(await producer_ids.next())

    def handle(_context: RequestContext, request: InitProducerIdRequest) -> Handled:
        refuse_transactional_id(request.transactional_id)
        producer_id = producer_ids.take()
        return answer() if producer_id is None else _response(producer_id)

    return ApiHandler(
        api_key=InitProducerIdRequest.API_KEY,
        min_version=InitProducerIdRequest.MIN_VERSION,
        max_version=InitProducerIdRequest.MAX_VERSION,
        handle=handle,
        error_response=_error_response,
    )


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error_response(_request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error.code), producer_epoch=-1)
