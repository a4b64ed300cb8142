"""Batches that wait for the coordinator: what may happen until its word comes, and in which order
they are appended then."""

import asyncio

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import TransactionEnd
from sparklog.executors.replica_manager import RequestTransaction, transaction_verifications
from sparklog.executors.replica_manager.transaction_verifications import ASKED_MAX
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.broker.verification_rig import (
    NEW,
    OLD,
    Broker,
    answers,
    run,
    settle,
)
from tests.unit.executors.partition.partition_maker import NODE, NOW, Maker, batch, led

OTHER_NODE = 2
RETRY = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("transaction", [OLD, NEW])
def test_one_word_lets_all_batches_of_a_transaction_in(transaction: RequestTransaction) -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(n, transaction=transaction) for n in range(3)]
        await settle()
        sent.append(broker.send(3, transaction=transaction))
        assert broker.coordinator.questions() == [(7, 3, transaction.adds_partitions)]
        assert all(each.waits for each in sent)
        await broker.coordinator.answer()
        assert answers(*sent, broker.send(4, transaction=transaction)) == [0, 1, 2, 3, 4]
        assert broker.counters.transaction_verifications == 1
        assert broker.waiting == (0, 0)

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED])
def test_one_word_refuses_all_batches_of_a_transaction(code: ErrorCode) -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(n) for n in range(3)]
        await settle()
        await broker.coordinator.answer(KafkaError(code))
        assert answers(*sent) == [code] * 3
        assert broker.partition.log.log_end_offset == 0
        again = broker.send(0)
        await settle()
        await broker.coordinator.answer()
        assert again.answer == 0

    run(test)


def test_producers_do_not_wait_for_each_other() -> None:
    async def test(broker: Broker) -> None:
        first, second = broker.send(0, producer_id=7), broker.send(0, producer_id=8)
        await settle()
        assert broker.coordinator.questions() == [(7, 3, False), (8, 3, False)]
        broker.coordinator.asked.reverse()
        await broker.coordinator.answer()
        assert (first.waits, second.answer) == (True, 0)
        plain = broker.partition.append_as_leader(batch(b"plain"), acks=1, now_ms=NOW)
        assert plain.base_offset == 1
        await broker.coordinator.answer()
        assert first.answer == 2

    run(test)


def test_each_epoch_needs_its_own_word() -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(0, epoch=3), broker.send(0, epoch=4), broker.send(1, epoch=4)]
        await settle()
        assert broker.coordinator.questions() == [(7, 3, False)]
        await broker.coordinator.answer(KafkaError(ErrorCode.PRODUCER_FENCED))
        assert broker.coordinator.questions() == [(7, 4, False)]
        await broker.coordinator.answer()
        assert answers(*sent) == [ErrorCode.PRODUCER_FENCED, 0, 1]

    run(test)


def test_a_request_without_transactional_id_is_refused_at_once() -> None:
    async def test(broker: Broker) -> None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.send(0, transaction=None).answer == code
        assert broker.waiting == (0, 0)

    run(test)


def test_only_new_clients_need_a_word_when_the_setting_is_off() -> None:
    async def test(broker: Broker) -> None:
        broker.is_on = False
        old, new = broker.send(0), broker.send(0, producer_id=8, transaction=NEW)
        await settle()
        assert (old.answer, new.waits) == (0, True)
        assert broker.coordinator.questions() == [(8, 3, True)]
        await broker.coordinator.answer()
        assert new.answer == 1

    run(test)


# what may happen meanwhile


def test_the_word_is_about_the_transaction_before_if_a_marker_comes_meanwhile() -> None:
    async def test(broker: Broker) -> None:
        sent = broker.send(0, epoch=4, transaction=NEW)
        await settle()
        broker.end(epoch=4)
        await broker.coordinator.answer()
        assert sent.waits
        assert broker.coordinator.questions() == [(7, 4, True)]
        await broker.coordinator.answer()
        assert sent.answer == 1

    run(test)


def test_a_marker_fences_a_new_clients_batch_of_the_transaction_before() -> None:
    async def test(broker: Broker) -> None:
        sent = broker.send(0, epoch=3, transaction=NEW)
        await settle()
        broker.end(epoch=4)
        await broker.coordinator.answer()
        await broker.coordinator.answer(KafkaError(ErrorCode.PRODUCER_FENCED))
        assert sent.answer == ErrorCode.PRODUCER_FENCED
        assert broker.partition.log.log_end_offset == 1

    run(test)


def test_an_old_clients_batch_belongs_to_no_transaction_that_begins_after_a_marker() -> None:
    """Its producer begins a transaction when the markers of the one before are written."""

    async def test(broker: Broker) -> None:
        late, later = broker.send(0), broker.send(1)
        await settle()
        broker.end(epoch=3)
        next_one = broker.send(0)
        await broker.coordinator.answer()
        assert answers(late, later) == [RETRY, RETRY]
        assert broker.coordinator.questions() == [(7, 3, False)]
        await broker.coordinator.answer()
        assert next_one.answer == 1
        assert broker.counters.transaction_verifications == 2

    run(test)


def test_the_coordinator_is_not_asked_for_ever() -> None:
    async def test(broker: Broker) -> None:
        sent = broker.send(0, epoch=9, transaction=NEW)
        await settle()
        for _ in range(ASKED_MAX):
            broker.end(epoch=9)
            await broker.coordinator.answer()
        assert sent.answer == ErrorCode.CONCURRENT_TRANSACTIONS
        assert broker.coordinator.asked == []
        assert broker.counters.transaction_verifications == ASKED_MAX

    run(test)


def test_a_role_that_is_lost_meanwhile() -> None:
    async def test(broker: Broker) -> None:
        sent = broker.send(0)
        await settle()
        broker.partition.drop_role()
        await broker.coordinator.answer()
        assert sent.answer == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


@pytest.mark.parametrize("transaction", [OLD, NEW])
def test_a_role_that_is_lost_and_taken_again_meanwhile(transaction: RequestTransaction) -> None:
    """Another leader wrote the marker; as a follower this replica rebuilt its producer state."""

    async def test(broker: Broker) -> None:
        partition = broker.partition
        both = (NODE, OTHER_NODE)
        sent = broker.send(0, transaction=transaction)
        await settle()
        other = led(1, leader=OTHER_NODE, replicas=both, isr=both)
        partition.make_leader_or_follower(other, 1)
        rebuilt = Maker().open()
        marker = EndTxnMarker(control_type=ControlType.COMMIT, coordinator_epoch=1)
        end = TransactionEnd(producer_id=7, producer_epoch=3, marker=marker)
        rebuilt.end_transaction(end, now_ms=NOW)
        partition.producers.load_snapshot(rebuilt.producers.to_snapshot(), NOW)
        partition.make_leader_or_follower(led(2), 2)
        await broker.coordinator.answer()
        assert sent.answer == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 0
        again = broker.send(0, transaction=transaction)
        await settle()
        await broker.coordinator.answer()
        assert again.answer == 0

    run(test)


def test_a_partition_that_is_closed_while_the_coordinator_is_asked() -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(0), broker.send(1), broker.send(0, producer_id=8)]
        await settle()
        sent.append(broker.send(0, producer_id=9))  # its task has not begun
        await broker.verifications.refuse_waiting(broker.partition)
        assert answers(*sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
        assert broker.waiting == (0, 0)
        late = broker.send(0)
        await settle()
        broker.hosted = None
        broker.coordinator.asked = broker.coordinator.asked[-1:]
        await broker.coordinator.answer()
        assert late.answer == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.partition.log.log_end_offset == 0

    run(test)


def test_a_batch_that_is_sent_again_while_it_waits_is_appended_once() -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(0), broker.send(1), broker.send(0), broker.send(1)]
        await settle()
        await broker.coordinator.answer()
        assert answers(*sent) == [0, 1, 0, 1]
        assert broker.partition.log.log_end_offset == 2

    run(test)


def test_a_batch_that_nobody_waits_for_is_not_appended() -> None:
    async def test(broker: Broker) -> None:
        first, second = broker.send(0), broker.send(0)
        await settle()
        assert isinstance(first.found, asyncio.Future)
        first.found.cancel()
        await broker.coordinator.answer()
        assert second.answer == 0
        assert broker.partition.log.log_end_offset == 1
        alone = broker.send(0, producer_id=8)
        assert isinstance(alone.found, asyncio.Future)
        alone.found.cancel()
        await settle()
        await broker.coordinator.answer()
        assert broker.partition.log.log_end_offset == 1

    run(test)


def test_an_unexpected_failure_leaves_no_batch_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(0), broker.send(1)]
        await settle()
        await broker.coordinator.answer(RuntimeError("no reason"))
        assert answers(*sent) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
        assert broker.waiting == (0, 0)
        assert "no reason" in caplog.text

    run(test)


# the first batch that a partition knows of a producer


def test_a_batch_behind_a_refused_one_is_not_appended_before_it() -> None:
    async def test(broker: Broker) -> None:
        first = broker.send(4)  # it has no state here any more
        await settle()
        await broker.coordinator.answer(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        second = broker.send(5)
        await settle()
        await broker.coordinator.answer()
        assert answers(first, second) == [ErrorCode.COORDINATOR_NOT_AVAILABLE, OUT_OF_ORDER]
        again = [broker.send(4), broker.send(5)]
        await settle()
        await broker.coordinator.answer()
        assert answers(*again) == [0, 1]

    run(test)


def test_a_refusal_for_good_is_not_waited_for() -> None:
    async def test(broker: Broker) -> None:
        first = broker.send(4)
        await settle()
        await broker.coordinator.answer(KafkaError(ErrorCode.INVALID_TXN_STATE))
        second = broker.send(5)
        await settle()
        await broker.coordinator.answer()
        assert answers(first, second) == [ErrorCode.INVALID_TXN_STATE, 0]

    run(test)


def test_a_new_epoch_does_not_wait_for_refused_batches_of_the_epoch_before() -> None:
    async def test(broker: Broker) -> None:
        first = broker.send(0)
        await settle()
        await broker.coordinator.answer(KafkaError(RETRY))
        second = broker.send(5, epoch=4)
        await settle()
        await broker.coordinator.answer()
        assert answers(first, second) == [RETRY, 0]

    run(test)


def test_refused_batches_are_forgotten_when_another_replica_has_led() -> None:
    """The producer has sent the first batch to the other leader, and its state has expired."""

    async def test(broker: Broker) -> None:
        first = broker.send(0)
        await settle()
        await broker.coordinator.answer(KafkaError(RETRY))
        both = (NODE, OTHER_NODE)
        other = led(1, leader=OTHER_NODE, replicas=both, isr=both)
        broker.partition.make_leader_or_follower(other, 1)
        broker.partition.make_leader_or_follower(led(2), 2)
        second = broker.send(5)
        await settle()
        await broker.coordinator.answer()
        assert answers(first, second) == [RETRY, 0]

    run(test)


def test_a_batch_that_is_refused_in_a_new_leader_epoch_is_waited_for() -> None:
    async def test(broker: Broker) -> None:
        first = broker.send(4)
        await settle()
        broker.partition.make_leader_or_follower(led(1), 1)
        second = broker.send(5)
        await broker.coordinator.answer()
        await broker.coordinator.answer()
        assert answers(first, second) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER]

    run(test)


def test_a_new_client_begins_each_transaction_with_sequence_0() -> None:
    async def test(broker: Broker) -> None:
        sent = [broker.send(n, transaction=NEW) for n in (1, 2)]
        await settle()
        await broker.coordinator.answer()
        assert answers(*sent) == [OUT_OF_ORDER] * 2
        again = [broker.send(n, transaction=NEW) for n in (0, 1)]
        await settle()
        await broker.coordinator.answer()
        assert answers(*again) == [0, 1]

    run(test)


def test_refused_batches_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verifications, "REFUSED_MAX", 2)

    async def test(broker: Broker) -> None:
        for producer_id in (7, 8, 9):
            broker.send(0, producer_id=producer_id)
            await settle()
            await broker.coordinator.answer(KafkaError(RETRY))
        sent = [broker.send(1, producer_id=producer_id) for producer_id in (7, 8, 9)]
        await settle()
        for _ in sent:
            await broker.coordinator.answer()
        assert answers(*sent) == [0, OUT_OF_ORDER, OUT_OF_ORDER]
        await broker.verifications.refuse_waiting(broker.partition)
        assert not broker.verifications._refused._lowest

    run(test)


# the bound of bytes


def test_no_more_bytes_wait_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verifications, "WAITING_BYTES_MAX", 3_000)

    async def test(broker: Broker) -> None:
        sent = [broker.send(n, size=900) for n in range(5)]
        assert [each.waits for each in sent] == [True, True, True, False, False]
        assert answers(*sent[3:]) == [RETRY] * 2
        await settle()
        await broker.coordinator.answer()
        assert answers(*sent[:3]) == [0, 1, 2]
        assert broker.waiting == (0, 0)
        large = broker.send(3, size=9_000)
        broker.end(epoch=3)
        assert large.answer == 3
        large = broker.send(4, size=9_000)
        assert large.waits, "a batch above the bound waits alone"
        assert broker.send(0, producer_id=8).answer == RETRY
        await settle()
        await broker.coordinator.answer()
        assert large.answer == 5

    run(test)


def test_a_batch_behind_one_that_found_no_room_is_not_appended_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_verifications, "WAITING_BYTES_MAX", 3_000)

    async def test(broker: Broker) -> None:
        other = broker.send(0, producer_id=8, size=2_000)
        first, second = broker.send(0, size=2_000), broker.send(1)
        await settle()
        await broker.coordinator.answer()
        await broker.coordinator.answer()
        assert answers(other, first, second) == [0, RETRY, OUT_OF_ORDER]

    run(test)
