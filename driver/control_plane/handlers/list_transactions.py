"""ListTransactions (key 66) v0-1: the transactional ids, filtered by state, producer and age.

Deviation: v2, which filters by a regular expression, is not served, because an expression that
backtracks would hold the control plane.  Tools filter the list themselves then.
"""

from collections.abc import Callable, Iterator

from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.driver.transactions import STATE_BY_LABEL, Transaction
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import (
    LIST_TRANSACTIONS_MAX_VERSION,
    refuse_list_transactions,
)
from sparklog.slices import Slices, in_slices
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_UNITS = 2


def handler(transactions: TransactionalRequests, wall_ms: Callable[[], int]) -> ApiHandler:
    def handle(
        _context: RequestContext, request: ListTransactionsRequest
    ) -> Slices[ListTransactionsResponse]:
        found = [
            each for shard in transactions.coordinator.shards() for each in shard.transactions()
        ]
        now_ms = wall_ms()
        listed = yield from in_slices(lambda each: _listed(each, request, now_ms), found, _UNITS)
        return ListTransactionsResponse(
            unknown_state_filters=tuple(_unknown_states(request)),
            transaction_states=tuple(each for each in listed if each is not None),
        )

    return ApiHandler(
        api_key=ListTransactionsRequest.API_KEY,
        min_version=ListTransactionsRequest.MIN_VERSION,
        max_version=LIST_TRANSACTIONS_MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_list_transactions,
    )


def _unknown_states(request: ListTransactionsRequest) -> Iterator[str]:
    return (label for label in request.state_filters if label not in STATE_BY_LABEL)


def _listed(
    transaction: Transaction, request: ListTransactionsRequest, now_ms: int
) -> TransactionState | None:
    """The entry of a transaction; None when a filter leaves it out."""
    label, producer_id = transaction.state.label, transaction.producer_id
    if request.state_filters and label not in request.state_filters:
        return None
    if request.producer_id_filters and producer_id not in request.producer_id_filters:
        return None
    if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
        return None
    return TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=producer_id,
        transaction_state=label,
    )
