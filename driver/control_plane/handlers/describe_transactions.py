"""DescribeTransactions (key 65) v0: the state of transactional ids."""

from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.driver.transactions import PREPARED
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import refuse_describe_transactions
from sparklog.service.transactional_ids import require_transactional_id
from sparklog.slices import Slices, in_slices
from sparklog.types import numbers_by_topic
from sparklog.wire.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

_UNITS = 10


def handler(transactions: TransactionalRequests) -> ApiHandler:
    def handle(
        _context: RequestContext, request: DescribeTransactionsRequest
    ) -> Slices[DescribeTransactionsResponse]:
        ids = dict.fromkeys(request.transactional_ids)
        described = yield from in_slices(describe, ids, _UNITS)
        return DescribeTransactionsResponse(transaction_states=tuple(described))

    def describe(transactional_id: str) -> TransactionState:
        try:
            return _described(transactions, transactional_id)
        except KafkaError as error:
            return TransactionState(transactional_id=transactional_id, error_code=int(error.code))

    return ApiHandler(
        api_key=DescribeTransactionsRequest.API_KEY,
        min_version=DescribeTransactionsRequest.MIN_VERSION,
        max_version=DescribeTransactionsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_describe_transactions,
    )


def _described(transactions: TransactionalRequests, transactional_id: str) -> TransactionState:
    require_transactional_id(transactional_id)
    shard = transactions.coordinator.shard(transactional_id)
    transaction = shard.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{transactional_id!r} is not known")
    is_decided = transaction.state in PREPARED
    partitions = shard.unwritten(transactional_id) if is_decided else transaction.partitions
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=name, partitions=numbers)
            for name, numbers in numbers_by_topic(sorted(partitions)).items()
        ),
    )
