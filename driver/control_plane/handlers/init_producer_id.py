"""InitProducerId (key 22) v0-5: a producer id for an idempotent or transactional producer.

A request with a transactional id fences the earlier producer with this id, and aborts its open
transaction.  An idempotent producer without one gets a new id.
"""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.transactional_requests import (
    TransactionalRequests,
)
from sparklog.driver.transactions import InitProducerId, ProducerIdentity
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.init_producer_id import (
    INIT_PRODUCER_ID_MAX_VERSION,
    check_init_producer_id,
    init_producer_id_refused,
)
from sparklog.types import NO_PRODUCER_ID
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_FENCED_FROM = 4


def handler(decide: Decide, transactions: TransactionalRequests) -> ApiHandler:
    def handle(context: RequestContext, request: InitProducerIdRequest) -> Handled:
        check_init_producer_id(request)
        if request.transactional_id is None:
            return decide(request)
        return answer(context, request, request.transactional_id)

    async def answer(
        context: RequestContext, request: InitProducerIdRequest, transactional_id: str
    ) -> InitProducerIdResponse:
        expected = (
            None
            if request.producer_id == NO_PRODUCER_ID
            else ProducerIdentity(request.producer_id, request.producer_epoch)
        )
        identity = await transactions.submit(
            context,
            transactional_id,
            lambda request_id: InitProducerId(
                request_id=request_id,
                transactional_id=transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=expected,
            ),
            fenced_from=_FENCED_FROM,
        )
        assert isinstance(identity, ProducerIdentity)
        return InitProducerIdResponse(
            producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    return ApiHandler(
        api_key=InitProducerIdRequest.API_KEY,
        min_version=InitProducerIdRequest.MIN_VERSION,
        max_version=INIT_PRODUCER_ID_MAX_VERSION,
        handle=handle,
        error_response=init_producer_id_refused,
    )
