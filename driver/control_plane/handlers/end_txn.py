"""EndTxn (key 26) v0-5: a producer commits or aborts its transaction.

The response comes when the decision is durable; markers follow.  From v5 on (transaction version 2)
the producer gets the identity of its next transaction.
"""

from sparklog.driver.control_plane.handlers.transactional_requests import (
    OLD_CLIENT_VERSION,
    TransactionalRequests,
)
from sparklog.driver.transactions import EPOCH_BUMP_VERSION, EndTransaction, ProducerIdentity
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import refuse_end_txn
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_BUMPS_FROM = 5


def handler(transactions: TransactionalRequests) -> ApiHandler:
    async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        bumps = context.version >= _BUMPS_FROM
        identity = await transactions.submit(
            context,
            request.transactional_id,
            lambda request_id: EndTransaction(
                request_id=request_id,
                transactional_id=request.transactional_id,
                producer=ProducerIdentity(request.producer_id, request.producer_epoch),
                committed=request.committed,
                connection=context.connection.number,
                client_version=EPOCH_BUMP_VERSION if bumps else OLD_CLIENT_VERSION,
            ),
            fenced_from=_FENCED_FROM,
        )
        assert isinstance(identity, ProducerIdentity)
        if not bumps:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)

    return ApiHandler(
        api_key=EndTxnRequest.API_KEY,
        min_version=EndTxnRequest.MIN_VERSION,
        max_version=EndTxnRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_end_txn,
    )
