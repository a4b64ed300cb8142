"""When the last stable offset of a partition lies behind every committed record."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.transactions.partition_transactions import Blocker, PartitionTransactions
from sparklog.types import TopicPartition
from tests.unit.driver.transactions.shard_rig import T0, T1, U0


@pytest.fixture
def transactions() -> Iterator[PartitionTransactions]:
    made = PartitionTransactions()
    yield made
    made.check_invariants()


def unsettled(transactions: PartitionTransactions) -> list[Blocker]:
    return list(transactions.blockers((T0, T1, U0)))


def test_an_open_transaction_alone_is_no_blocker(transactions: PartitionTransactions) -> None:
    transactions.join("x", (T0, T1), 10)
    transactions.join("y", (T0,), 20)
    assert unsettled(transactions) == []


def test_a_commit_blocks_until_its_markers_are_written(transactions: PartitionTransactions) -> None:
    transactions.join("x", (T0, T1), 10)
    transactions.decide_commit((T0, T1))
    assert unsettled(transactions) == [Blocker("x", T0, 10), Blocker("x", T1, 10)]
    transactions.leave("x", (T1,))
    assert unsettled(transactions) == [Blocker("x", T0, 10)]
    transactions.leave("x", (T0,))
    assert unsettled(transactions) == []


def test_an_older_transaction_blocks_where_a_later_one_was_committed(
    transactions: PartitionTransactions,
) -> None:
    transactions.join("old", (T0, U0), 10)
    transactions.join("x", (T0, T1), 20)
    transactions.decide_commit((T0, T1))
    transactions.leave("x", (T0, T1))
    transactions.join("new", (T0, T1), 30)
    assert unsettled(transactions) == [Blocker("old", T0, 10)]
    transactions.leave("old", (T0,))
    assert unsettled(transactions) == []


def test_a_transaction_blocks_where_it_joined_before_the_commit(
    transactions: PartitionTransactions,
) -> None:
    """It joins one partition after the other, and others commit in between."""
    transactions.join("x", (T0, T1), 10)
    transactions.join("long", (T0,), 20)
    transactions.decide_commit((T0, T1))
    transactions.leave("x", (T0, T1))
    transactions.join("long", (T0, T1), 30)
    assert unsettled(transactions) == [Blocker("long", T0, 20)]


def test_a_loaded_transaction_blocks_until_it_is_over(transactions: PartitionTransactions) -> None:
    transactions.load("x", (T0,), 5)
    transactions.join("y", (T0, T1), 10)
    assert unsettled(transactions) == [Blocker("x", T0, 5)]
    transactions.leave("x", (T0,))
    assert unsettled(transactions) == []


def test_partitions_without_open_transactions_are_forgotten(
    transactions: PartitionTransactions,
) -> None:
    transactions.join("x", (T0, T1), 10)
    transactions.decide_commit((T0, T1))
    transactions.leave("x", (T0, T1))
    transactions.leave("x", (T0, T1))
    assert not transactions._partitions


#: A transaction id, and what it does: it writes to a partition, or it ends.
_STEP = st.tuples(st.sampled_from("abc"), st.sampled_from([T0, T1, "commit", "abort"]))


@given(st.lists(_STEP, max_size=40))
def test_settled_partitions_tear_no_transaction(
    steps: list[tuple[str, TopicPartition | str]],
) -> None:
    """Against logs of records: a committed record behind the last stable offset is a tear."""
    transactions = PartitionTransactions()
    logs: dict[TopicPartition, list[tuple[str, int]]] = {T0: [], T1: []}
    joined: dict[str, set[TopicPartition]] = {name: set() for name in "abc"}
    number = dict.fromkeys("abc", 0)
    committed: set[tuple[str, int]] = set()
    for name, what in steps:
        if isinstance(what, TopicPartition):
            transactions.join(name, (what,), 0)
            joined[name].add(what)
            logs[what].append((name, number[name]))
        else:
            if what == "commit":
                transactions.decide_commit(joined[name])
                committed.add((name, number[name]))
            transactions.leave(name, joined[name])
            number[name] += 1
            joined[name] = set()
        for tp, log in logs.items():
            stable = next((i for i, (owner, n) in enumerate(log) if n == number[owner]), len(log))
            if transactions.blocker(tp) is None:
                assert not committed & set(log[stable:])
    transactions.check_invariants()
