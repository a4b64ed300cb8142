"""The state machine of a transactional producer: every call in every state, and its identities."""

from collections.abc import Callable

import pytest

from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.client.transactions.producer_state import TRANSITIONS, ProducerState
from sparklog.client.transactions.transaction_manager import TransactionManager
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST = ProducerIdentity(producer_id=7, producer_epoch=0)
SECOND = ProducerIdentity(producer_id=7, producer_epoch=1)
S = ProducerState
LOST = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "t-0: lost")
FENCED = KafkaError(ErrorCode.PRODUCER_FENCED)

WAYS: dict[ProducerState, tuple[Callable[[TransactionManager], object], ...]] = {
    S.UNINITIALIZED: (),
    S.INITIALIZING: (lambda m: m.begin_initializing(),),
    S.READY: (lambda m: m.begin_initializing(), lambda m: m.initialized(FIRST)),
}
WAYS[S.IN_TRANSACTION] = (*WAYS[S.READY], lambda m: m.begin(0))
WAYS[S.COMMITTING_TRANSACTION] = (*WAYS[S.IN_TRANSACTION], lambda m: m.begin_commit())
WAYS[S.ABORTING_TRANSACTION] = (*WAYS[S.IN_TRANSACTION], lambda m: m.begin_abort())
WAYS[S.ABORTABLE_ERROR] = (*WAYS[S.IN_TRANSACTION], lambda m: m.batch_failed(LOST))
WAYS[S.FATAL_ERROR] = (*WAYS[S.IN_TRANSACTION], lambda m: m.batch_failed(FENCED))

CALLS: dict[str, Callable[[TransactionManager], object]] = {
    "init": lambda m: m.begin_initializing(),
    "begin": lambda m: m.begin(0),
    "commit": lambda m: m.begin_commit(),
    "abort": lambda m: m.begin_abort(),
    "send": lambda m: m.check_open("send"),
    "batch": lambda m: m.partitions_to_add(T0),
}
#: The state that each call leads to; every other call is refused and changes nothing.
ALLOWED = {
    ("init", S.UNINITIALIZED): S.INITIALIZING,
    ("init", S.INITIALIZING): S.INITIALIZING,
    ("begin", S.READY): S.IN_TRANSACTION,
    ("commit", S.IN_TRANSACTION): S.COMMITTING_TRANSACTION,
    ("commit", S.COMMITTING_TRANSACTION): S.COMMITTING_TRANSACTION,
    ("abort", S.IN_TRANSACTION): S.ABORTING_TRANSACTION,
    ("abort", S.ABORTABLE_ERROR): S.ABORTING_TRANSACTION,
    ("abort", S.ABORTING_TRANSACTION): S.ABORTING_TRANSACTION,
    ("send", S.IN_TRANSACTION): S.IN_TRANSACTION,
    ("batch", S.IN_TRANSACTION): S.IN_TRANSACTION,
    ("batch", S.COMMITTING_TRANSACTION): S.COMMITTING_TRANSACTION,
}
REFUSALS = {
    S.ABORTABLE_ERROR: ErrorCode.TRANSACTION_ABORTABLE,
    S.FATAL_ERROR: ErrorCode.PRODUCER_FENCED,
}


def manager_in(state: ProducerState) -> TransactionManager:
    manager = TransactionManager("x")
    for step in WAYS[state]:
        step(manager)
    assert manager.state is state
    return manager


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_in_every_state(call: str, state: ProducerState) -> None:
    manager = manager_in(state)
    if (call, state) in ALLOWED:
        CALLS[call](manager)
        assert manager.state is ALLOWED[call, state]
        return
    with pytest.raises(KafkaError) as caught:
        CALLS[call](manager)
    assert caught.value.code is REFUSALS.get(state, ErrorCode.INVALID_TXN_STATE)
    assert "'x'" in str(caught.value)
    assert manager.state is state


@pytest.mark.parametrize(
    ("state", "error", "after"),
    [
        (S.IN_TRANSACTION, LOST, S.ABORTABLE_ERROR),
        (S.COMMITTING_TRANSACTION, LOST, S.ABORTABLE_ERROR),
        (S.ABORTING_TRANSACTION, LOST, S.ABORTING_TRANSACTION),
        (S.ABORTABLE_ERROR, LOST, S.ABORTABLE_ERROR),
        (S.READY, LOST, S.READY),
        *((state, FENCED, S.FATAL_ERROR) for state in S),
        (S.FATAL_ERROR, LOST, S.FATAL_ERROR),
    ],
)
def test_a_failed_batch(state: ProducerState, error: KafkaError, after: ProducerState) -> None:
    manager = manager_in(state)
    manager.batch_failed(error)
    assert manager.state is after


@pytest.mark.parametrize(
    ("state", "code", "after"),
    [
        (S.COMMITTING_TRANSACTION, ErrorCode.TRANSACTION_ABORTABLE, S.ABORTABLE_ERROR),
        (S.COMMITTING_TRANSACTION, ErrorCode.INVALID_TXN_STATE, S.FATAL_ERROR),
        (S.ABORTING_TRANSACTION, ErrorCode.TRANSACTION_ABORTABLE, S.FATAL_ERROR),
        (S.INITIALIZING, ErrorCode.INVALID_TRANSACTION_TIMEOUT, S.FATAL_ERROR),
    ],
)
def test_a_refused_end(state: ProducerState, code: ErrorCode, after: ProducerState) -> None:
    manager = manager_in(state)
    error = manager.end_refused(KafkaError(code, "no"))
    assert (manager.state, error.code) == (after, code)


def test_the_first_cause_is_the_one_that_is_told() -> None:
    manager = manager_in(S.ABORTABLE_ERROR)
    manager.batch_failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "later"))
    assert "t-0: lost" in str(manager.error)
    assert manager.error is not None
    assert manager.error.__cause__ is LOST


def test_sequences_go_on_until_the_epoch_changes() -> None:
    manager = manager_in(S.IN_TRANSACTION)
    manager.next_batch(T0)
    manager.delivered(T0, 5)
    manager.begin_commit()
    manager.ended(None)
    assert (manager.state, manager.next_batch(T0)["base_sequence"]) == (S.READY, 5)
    manager.begin(2)
    manager.begin_commit()
    manager.ended(SECOND)
    batch = manager.next_batch(T0)
    assert (manager.state, batch["base_sequence"], batch["producer_epoch"]) == (S.READY, 0, 1)


def test_a_failed_transaction_is_followed_by_a_new_epoch() -> None:
    told = manager_in(S.ABORTABLE_ERROR)
    told.begin_abort()
    told.ended(SECOND)
    assert (told.state, told.identity) == (S.READY, SECOND)

    asked = manager_in(S.ABORTABLE_ERROR)
    asked.begin_abort()
    asked.ended(None)
    assert (asked.state, asked.is_recovering) == (S.INITIALIZING, True)
    asked.begin_abort()  # the request for the epoch is repeated
    asked.initialized(SECOND)
    asked.begin(0)
    asked.begin_commit()
    asked.ended(None)
    assert (asked.state, asked.identity) == (S.READY, SECOND)


def test_partitions_are_added_once_before_version_2() -> None:
    manager = manager_in(S.IN_TRANSACTION)
    assert manager.partitions_to_add(T0) == {T0}
    assert manager.partitions_to_add(T1) == {T0, T1}
    assert not manager.needs_end_txn
    manager.partitions_added({T0})
    assert manager.partitions_to_add(T0) == frozenset()
    assert manager.partitions_to_add(T1) == {T1}
    assert manager.needs_end_txn
    assert manager.must_add_offsets("g")
    manager.offsets_added("g")
    assert not manager.must_add_offsets("g")
    manager.begin_commit()
    manager.ended(None)
    manager.begin(2)
    assert not manager.needs_end_txn
    assert manager.partitions_to_add(T0) == frozenset()
    assert not manager.must_add_offsets("g")
    assert manager.needs_end_txn


def test_every_state_has_its_transitions() -> None:
    assert TRANSITIONS.keys() == set(S)
    reached = {S.UNINITIALIZED, S.FATAL_ERROR}.union(*TRANSITIONS.values())
    assert reached == set(S)
