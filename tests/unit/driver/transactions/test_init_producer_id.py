"""Producers that start, go on after errors, and fence each other."""

import pytest

from sparklog.driver.transactions import ProducerIdentity, TransactionState
from sparklog.errors import ErrorCode
from sparklog.types import MAX_INT16
from tests.unit.driver.transactions.shard_rig import T0, T1, V1, V2, ShardRig


def test_a_new_transactional_id_gets_a_producer_id() -> None:
    rig = ShardRig()
    starting = rig.init()
    assert rig.is_waiting(starting)
    rig.append_all()
    assert rig.result(starting) == (100, 0)
    assert rig.started("y").producer_id == 101


def test_a_second_producer_fences_the_first() -> None:
    rig = ShardRig()
    first = rig.started()
    second = rig.started()
    assert second == (first.producer_id, first.epoch + 1)
    assert rig.refusal(rig.add(first, T0)) == ErrorCode.PRODUCER_FENCED
    assert rig.refusal(rig.end(first)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [V1, V2])
def test_a_second_producer_aborts_the_transaction_of_the_first(version: int) -> None:
    rig = ShardRig()
    first = rig.ongoing(T0, T1, version=version)
    starting = rig.init()
    rig.append_all()
    (markers,) = rig.markers
    assert (markers.committed, markers.producer.epoch) == (False, first.epoch + 1)
    assert rig.is_waiting(starting)
    rig.settle()
    assert rig.result(starting) == (first.producer_id, first.epoch + 2)
    assert rig.transaction().state == TransactionState.EMPTY
    assert rig.refusal(rig.end(first, version=version)) == ErrorCode.PRODUCER_FENCED


def test_a_producer_goes_on_after_an_error() -> None:
    rig = ShardRig()
    producer = rig.started()
    going_on = rig.init(expected=producer)
    rig.settle()
    assert rig.result(going_on) == (producer.producer_id, producer.epoch + 1)
    again = rig.init(expected=producer)  # its response was lost
    rig.settle()
    assert rig.result(again) == rig.result(going_on)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_that_goes_on_aborts_its_own_transaction(version: int) -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0, version=version)
    going_on = rig.init(expected=producer)
    rig.append_all()
    (markers,) = rig.markers
    assert (markers.committed, markers.producer.epoch) == (False, producer.epoch + 1)
    rig.settle()
    assert rig.result(going_on) == (producer.producer_id, producer.epoch + 1)
    again = rig.init(expected=producer)  # its response was lost
    rig.settle()
    assert rig.result(again) == rig.result(going_on)


def test_a_producer_cannot_go_on_once_another_one_was_started() -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0)
    rig.started()
    assert rig.refusal(rig.init(expected=producer)) == ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_cannot_go_on() -> None:
    rig = ShardRig()
    first = rig.started()
    rig.started()
    assert rig.refusal(rig.init(expected=first)) == ErrorCode.PRODUCER_FENCED
    stranger = ProducerIdentity(first.producer_id + 9, 0)
    assert rig.refusal(rig.init(expected=stranger)) == ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_was_forgotten_may_go_on() -> None:
    rig = ShardRig()
    starting = rig.init(expected=ProducerIdentity(7, 3))
    rig.settle()
    assert rig.result(starting) == (100, 0)


def test_exhausted_epochs_lead_to_a_new_producer_id() -> None:
    rig = ShardRig()
    producer = rig.started()
    while producer.epoch < MAX_INT16 - 1:
        producer = rig.started()
    going_on = rig.init(expected=producer)
    rig.settle()
    assert rig.result(going_on) == (101, 0)
    again = rig.init(expected=producer)  # its response was lost
    rig.settle()
    assert rig.result(again) == (101, 0)


def test_fencing_at_the_last_epoch_leaves_room_for_its_markers() -> None:
    rig = ShardRig()
    producer = rig.started()
    while producer.epoch < MAX_INT16 - 1:
        producer = rig.started()
    rig.add(producer, T0)
    rig.append_all()
    starting = rig.init()
    rig.append_all()
    assert rig.markers[0].producer == (producer.producer_id, MAX_INT16)
    rig.settle()
    assert rig.result(starting) == (101, 0)


def test_a_producer_that_aborts_its_transaction_at_the_last_epoch_gets_a_new_id() -> None:
    rig = ShardRig()
    producer = rig.started()
    while producer.epoch < MAX_INT16 - 1:
        producer = rig.started()
    rig.add(producer, T0)
    rig.append_all()
    going_on = rig.init(expected=producer)
    rig.settle()
    assert rig.result(going_on) == (101, 0)
    again = rig.init(expected=producer)  # its response was lost
    rig.settle()
    assert rig.result(again) == (101, 0)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "expected"),
    [
        ("", 1_000, ErrorCode.INVALID_REQUEST),
        ("x", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_bad_requests(transactional_id: str, timeout_ms: int, expected: ErrorCode) -> None:
    rig = ShardRig()
    assert rig.refusal(rig.init(transactional_id, timeout_ms=timeout_ms)) == expected
    assert rig.appends == []


def test_two_producers_that_start_at_once_get_different_epochs() -> None:
    rig = ShardRig()
    first, second = rig.init(), rig.init()
    assert rig.is_waiting(second)
    rig.settle()
    assert (rig.result(first), rig.result(second)) == ((100, 0), (100, 1))


def test_a_producer_that_was_started_and_not_answered_is_started_again_after_a_crash() -> None:
    rig = ShardRig()
    rig.init()
    rig.load()
    assert rig.shard.get("x") is None
    assert rig.started() == (101, 0)
