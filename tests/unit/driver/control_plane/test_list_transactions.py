"""ListTransactions: which transactional ids each filter leaves."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.driver.control_plane.handlers import list_transactions
from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.driver.transactions import Transaction, TransactionState
from sparklog.errors import ErrorCode, KafkaError
from sparklog.slices import run_through
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

NOW_MS = 1_000_000


def transaction(name: str, number: int, state: TransactionState, age_ms: int) -> Transaction:
    return Transaction(
        transactional_id=name,
        producer_id=number,
        timeout_ms=60_000,
        state=state,
        start_ms=NOW_MS - age_ms,
        update_ms=NOW_MS,
    )


TRANSACTIONS = (
    transaction("orders-1", 1, TransactionState.ONGOING, 5_000),
    transaction("orders-2", 2, TransactionState.EMPTY, 1_000),
    transaction("payments", 3, TransactionState.ONGOING, 100),
)


def listed(**filters: Any) -> tuple[list[str], tuple[str, ...]]:
    """The ids that are listed, and the states that are unknown."""
    shard = SimpleNamespace(transactions=lambda: TRANSACTIONS)
    coordinator = SimpleNamespace(shards=lambda: (shard,))
    requests = cast(TransactionalRequests, SimpleNamespace(coordinator=coordinator))
    handler = list_transactions.handler(requests, lambda: NOW_MS)
    assert (handler.min_version, handler.max_version) == (0, 2)

    async def answer() -> ListTransactionsResponse:
        handled = handler.handle(cast(Any, None), ListTransactionsRequest(**filters))
        return cast(
            ListTransactionsResponse,
            run_through(await handled if inspect.iscoroutine(handled) else handled),
        )

    response = asyncio.run(answer())
    names = [each.transactional_id for each in response.transaction_states]
    return names, response.unknown_state_filters


def test_each_filter_leaves_its_transactions() -> None:
    assert listed() == (["orders-1", "orders-2", "payments"], ())
    assert listed(state_filters=("Ongoing", "Odd")) == (["orders-1", "payments"], ("Odd",))
    assert listed(producer_id_filters=(2, 3)) == (["orders-2", "payments"], ())
    assert listed(duration_filter=1_000) == (["orders-1"], ())


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["orders-1", "orders-2", "payments"]),
        ("orders", []),
        ("orders-.*", ["orders-1", "orders-2"]),
        ("orders-1|pay.*", ["orders-1", "payments"]),
        ("(.*)*s", ["payments"]),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str, names: list[str]) -> None:
    assert listed(transactional_id_pattern=pattern) == (names, ())


@pytest.mark.parametrize("pattern", ["(", "a)|(?:b", "(?=a)"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError, match="no expression of RE2") as caught:
        listed(transactional_id_pattern=pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
