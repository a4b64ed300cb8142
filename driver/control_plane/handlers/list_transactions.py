"""ListTransactions (key 66) v0-2: the transactional ids, filtered by state, producer, age and id.

The regular expression of v2 is RE2's, as in Kafka, and matches whole ids.  RE2 takes time in
proportion to the length of an id, so no expression holds the control plane; the ids are matched in
a worker thread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.driver.transactions import STATE_BY_LABEL, Transaction
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import refuse_list_transactions
from sparklog.slices import Slices, in_slices
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_UNITS = 2


def handler(transactions: TransactionalRequests, wall_ms: Callable[[], int]) -> ApiHandler:
    def handle(_context: RequestContext, request: ListTransactionsRequest) -> Any:
        found = [
            each for shard in transactions.coordinator.shards() for each in shard.transactions()
        ]
        pattern = request.transactional_id_pattern
        return answer_matching(request, found, pattern) if pattern else answer(request, found)

    def answer(
        request: ListTransactionsRequest, found: Sequence[Transaction]
    ) -> Slices[ListTransactionsResponse]:
        now_ms = wall_ms()
        listed = yield from in_slices(lambda each: _listed(each, request, now_ms), found, _UNITS)
        return ListTransactionsResponse(
            unknown_state_filters=tuple(_unknown_states(request)),
            transaction_states=tuple(each for each in listed if each is not None),
        )

    async def answer_matching(
        request: ListTransactionsRequest, found: Sequence[Transaction], pattern: str
    ) -> Slices[ListTransactionsResponse]:
        return answer(request, await run_blocking(_matching, found, pattern))

    return ApiHandler(
        api_key=ListTransactionsRequest.API_KEY,
        min_version=ListTransactionsRequest.MIN_VERSION,
        max_version=ListTransactionsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_list_transactions,
    )


def _matching(transactions: Sequence[Transaction], pattern: str) -> list[Transaction]:
    """The transactions whose ids match as a whole.  Raises INVALID_REGULAR_EXPRESSION.  Blocks."""
    import pyarrow as pa  # the control plane works without Arrow otherwise
    import pyarrow.compute as pc

    ids = pa.array([each.transactional_id for each in transactions], pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # valid by itself
        matches = pc.match_substring_regex(ids, rf"\A(?:{pattern})\z").to_pylist()
    except pa.ArrowInvalid as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no expression of RE2: {error}"
        ) from error
    return [each for each, match in zip(transactions, matches, strict=True) if match]


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
