"""The requests about transactional ids (keys 24, 25, 26, 65, 66) on a broker.

ListTransactions is answered with no transactions, because tools ask every node.  All others are
answered with NOT_COORDINATOR, upon which clients look for the coordinator, which is node 0.
Brokers serve these APIs, in the version ranges of node 0, because some clients take the APIs of the
first node that they connect to for those of the whole cluster.  The APIs share a file because they
share this answer.
"""

from collections.abc import Callable
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.service.transaction_error_responses import (
    refuse_add_offsets_to_txn,
    refuse_add_partitions_to_txn,
    refuse_describe_transactions,
    refuse_end_txn,
    refuse_list_transactions,
)
from sparklog.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from sparklog.wire.protocol.schema import Request

#: The refusal of a broker.
NOT_COORDINATOR: Final = KafkaError(
    ErrorCode.NOT_COORDINATOR, "the control plane (node 0) coordinates all transactions"
)


def handlers() -> tuple[ApiHandler, ...]:
    return (
        _handler(AddPartitionsToTxnRequest, refuse_add_partitions_to_txn),
        _handler(AddOffsetsToTxnRequest, refuse_add_offsets_to_txn),
        _handler(EndTxnRequest, refuse_end_txn),
        _handler(DescribeTransactionsRequest, refuse_describe_transactions),
        _handler(
            ListTransactionsRequest,
            refuse_list_transactions,
            respond=lambda _: ListTransactionsResponse(),
        ),
    )


def _handler(
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Any],
    *,
    respond: Callable[[Any], Any] | None = None,
) -> ApiHandler:
    def handle(_context: RequestContext, request: Any) -> Handled:
        return respond(request) if respond is not None else refuse(request, NOT_COORDINATOR)

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse,
    )
