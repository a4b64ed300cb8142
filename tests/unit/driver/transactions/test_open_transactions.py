"""Partitions that are added and verified, requests that wait, timeouts and expiry."""

from dataclasses import replace

import pytest

from sparklog.driver.transactions import TransactionConfig, TransactionState
from sparklog.driver.transactions.waiting_requests import WAITING_MAX
from sparklog.errors import ErrorCode, KafkaError
from tests.unit.driver.transactions.shard_rig import T0, T1, TIMEOUT_MS, U0, V1, V2, ShardRig

CONFIG = TransactionConfig()


def test_partitions_are_added_once() -> None:
    rig = ShardRig()
    producer = rig.started()
    first = rig.add(producer, T0)
    assert rig.is_waiting(first)
    rig.append_all()
    assert rig.result(first) is None
    again = rig.add(producer, T0)
    assert (rig.result(again), rig.appends) == (None, [])
    begun_ms = rig.transaction().start_ms
    rig.now_ms += 10
    rig.add(producer, T1, U0)
    rig.append_all()
    assert rig.transaction().partitions == {T0, T1, U0}
    assert rig.transaction().start_ms == begun_ms


def test_partitions_that_are_not_durable_are_not_verified() -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0)
    rig.add(producer, T1)
    assert rig.result(rig.verify(producer, T0, T1)) == {T1}
    rig.append_all()
    assert rig.result(rig.verify(producer, T0, T1)) == frozenset()


def test_nothing_is_verified_once_the_transaction_ends() -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0)
    rig.end(producer)
    assert rig.refusal(rig.verify(producer, T0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.append_all()
    assert rig.refusal(rig.verify(producer, T0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.settle()
    assert rig.result(rig.verify(producer, T0)) == {T0}


@pytest.mark.parametrize("version", [V1, V2])
def test_the_next_transaction_waits_for_the_markers_of_the_last(version: int) -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0, version=version)
    ended = rig.end(producer, version=version)
    rig.append_all()
    producer = rig.result(ended)  # type: ignore[assignment]
    adding = rig.add(producer, T1, version=version)
    assert rig.is_waiting(adding)
    rig.settle()
    assert rig.result(adding) is None
    assert rig.transaction().partitions == {T1}
    assert rig.transaction().state == TransactionState.ONGOING


def test_a_request_waits_for_a_bounded_time() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    rig.end(producer)
    rig.append_all()
    adding = rig.add(producer, T1)
    assert rig.shard.next_deadline_ms() == rig.now_ms + CONFIG.concurrent_wait_ms
    rig.pass_time(CONFIG.concurrent_wait_ms - 1)
    assert rig.is_waiting(adding)
    rig.pass_time(1)
    assert rig.refusal(adding) == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.settle()
    assert rig.transaction().state == TransactionState.COMPLETE_COMMIT


def test_a_bounded_number_of_requests_waits() -> None:
    rig = ShardRig()
    rig.init()
    waiting = [rig.init() for _ in range(WAITING_MAX)]
    assert all(rig.is_waiting(each) for each in waiting)
    assert rig.refusal(rig.init()) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_without_a_wait_requests_are_refused_at_once_as_in_kafka() -> None:
    rig = ShardRig(config=replace(CONFIG, concurrent_wait_ms=0))
    producer = rig.ongoing()
    rig.end(producer)
    assert rig.refusal(rig.add(producer, T1)) == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.settle()
    rig.add(producer, T1)
    rig.append_all()
    starting = rig.init()
    rig.append_all()
    assert rig.refusal(starting) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_request_of_a_client_that_has_gone_is_not_decided() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    rig.end(producer)
    adding = rig.add(producer, T1)
    rig.shard.withdraw(adding, "x")
    rig.settle()
    assert rig.is_waiting(adding)
    assert rig.transaction().state == TransactionState.COMPLETE_COMMIT


def test_a_shard_that_is_unloaded_refuses_what_waits() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    ending, adding = rig.end(producer), rig.add(producer, T1)
    error = KafkaError(ErrorCode.NOT_COORDINATOR, "moved")
    refused = rig.shard.unload(error)
    assert {each.request_id: each.result for each in refused} == {ending: error, adding: error}


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    rig = ShardRig()
    producer = rig.ongoing(T0, T1)
    rig.pass_time(TIMEOUT_MS)
    assert rig.appends == []
    rig.pass_time(CONFIG.timeout_check_ms)
    rig.append_all()
    (markers,) = rig.markers
    assert (markers.committed, markers.producer.epoch) == (False, producer.epoch + 1)
    rig.settle()
    assert rig.refusal(rig.end(producer)) == ErrorCode.PRODUCER_FENCED
    going_on = rig.init(expected=producer)
    rig.settle()
    assert rig.result(going_on) == (producer.producer_id, producer.epoch + 1)
    assert rig.started().epoch == producer.epoch + 2
    assert rig.refusal(rig.init(expected=producer)) == ErrorCode.PRODUCER_FENCED


def test_a_transaction_that_is_ending_does_not_time_out() -> None:
    rig = ShardRig()
    producer = rig.ongoing()
    ending = rig.end(producer)
    rig.pass_time(TIMEOUT_MS + CONFIG.timeout_check_ms)
    rig.settle()
    assert rig.result(ending) == producer
    assert rig.transaction().state == TransactionState.COMPLETE_COMMIT


def test_a_transaction_times_out_after_a_crash_too() -> None:
    rig = ShardRig()
    rig.ongoing()
    rig.load()
    rig.pass_time(TIMEOUT_MS + CONFIG.timeout_check_ms)
    rig.settle()
    assert rig.transaction().state == TransactionState.COMPLETE_ABORT


def test_many_transactions_time_out_in_slices() -> None:
    rig = ShardRig()
    for number in range(2_500):
        rig.add(rig.started(f"x{number}"), T0, transactional_id=f"x{number}")
    rig.settle()
    rig.pass_time(TIMEOUT_MS + CONFIG.timeout_check_ms)
    assert len(rig.appends) == 2_000
    assert rig.shard.next_deadline_ms() <= rig.now_ms  # type: ignore[operator]
    rig.pass_time(0)
    assert len(rig.appends) == 2_500
    assert rig.shard.next_deadline_ms() == rig.now_ms + CONFIG.timeout_check_ms


def test_unused_transactional_ids_are_forgotten() -> None:
    rig = ShardRig()
    rig.started("idle")
    producer = rig.ongoing(T0)
    rig.pass_time(CONFIG.id_expiration_ms + 1)
    rig.append_all()
    assert rig.shard.get("idle") is None
    assert rig.log[-1].value is None or rig.log[-2].value is None
    assert rig.shard.get("x") is not None
    rig.load()
    assert rig.shard.get("idle") is None
    assert rig.started("idle") != producer


def test_a_request_for_an_id_that_is_being_forgotten_waits() -> None:
    rig = ShardRig()
    old = rig.started("idle")
    rig.pass_time(CONFIG.id_expiration_ms + 1)
    starting = rig.init("idle")
    rig.settle()
    assert rig.result(starting) == (old.producer_id + 1, 0)
