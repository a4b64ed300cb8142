"""Transactional batches over the wire: verified, added or refused by the coordinator."""

import asyncio

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Appended
from sparklog.types import ResourceType
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.transactional_producer import (
    ABORTABLE,
    NEW,
    NEW_END,
    OLD,
    OLD_END,
    SETTINGS,
    Answer,
    Gate,
    Producer,
    answers_of,
)

OK = ErrorCode.NONE
#: The version of Produce, and the EndTxn version of such a client.
GENERATIONS = [(OLD, OLD_END), (ABORTABLE, OLD_END), (NEW, NEW_END)]


@pytest.mark.parametrize(("version", "end_version"), GENERATIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_written_and_ended(
    version: int, end_version: int, committed: bool
) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        if version < NEW:
            await producer.add(0)
        assert await producer.produce(b"a", version=version) == (OK, 0)
        assert await producer.produce(b"b", version=version) == (OK, 1)
        assert producer.asked == 1
        await producer.end(end_version, committed=committed)
        assert await producer.committed() == ([b"a", b"b"] if committed else [])

    run(test, **SETTINGS)


def test_the_first_batch_of_a_new_client_adds_the_partition() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        assert await producer.produce(b"b", version=NEW, partition=1) == (OK, 0)
        shard = rig.control.transaction_coordinator.shard(producer.transactional_id)
        transaction = shard.get(producer.transactional_id)
        assert transaction is not None
        assert {tp.partition for tp in transaction.partitions} == {0, 1}
        await producer.end(NEW_END)
        assert [await producer.committed(n) for n in (0, 1)] == [[b"a"], [b"b"]]

    run(test, **SETTINGS)


@pytest.mark.parametrize(
    ("version", "code"),
    [(OLD, ErrorCode.INVALID_TXN_STATE), (ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_an_old_client_adds_its_partitions_first(version: int, code: ErrorCode) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        early = producer.batch(b"a")
        assert await producer.send(early, version) == (code, -1)
        await producer.add(1)
        assert await producer.send(early, version) == (code, -1)
        assert producer.partition().log.log_end_offset == 0
        await producer.add(0)
        assert await producer.send(early, version) == (OK, 0)

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_first_batch_needs_the_transactional_id(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        await producer.add(0)
        records = producer.batch(b"a")
        nameless = await producer.client.produce("t", records, version=version)
        assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert producer.asked == 0
        assert await producer.send(records, version) == (OK, 0)

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("acks", [1, -1])
def test_acks(version: int, acks: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        if version == OLD:
            await producer.add(0)
        for n in range(3):
            response = await producer.ask({0: producer.batch(b"%d" % n)}, version, acks)
            assert answers_of(response) == [(OK, n)]

    run(test, **SETTINGS)


def test_a_batch_without_acks_is_appended_or_ends_the_connection() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        await producer.add(0)
        await producer.send_without_acks(producer.batch(b"a"), OLD)
        await until(lambda: producer.partition().log.log_end_offset == 1)
        await producer.end(OLD_END)
        assert await producer.committed() == [b"a"]
        await producer.send_without_acks(producer.batch(b"b"), OLD)
        await until(lambda: producer.client.connection.closed)
        assert producer.partition().log.log_end_offset == 2

    run(test, **SETTINGS)


def test_a_transaction_begins_when_the_one_before_is_over() -> None:
    """EndTxn is answered before the markers are written, and the client goes on at once."""

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        for number in range(5):
            answer = await producer.produce(b"%d" % number, version=NEW)
            assert answer == (OK, 2 * number)
            await producer.end(NEW_END, committed=number != 2)
        assert await producer.committed() == [b"0", b"1", b"3", b"4"]

    run(test, **SETTINGS)


class HeldMarkers:
    """Lets the broker refuse markers until it is told to take them."""

    def __init__(self, rig: Rig) -> None:
        self._replica_manager = rig.brokers[1].replica_manager
        self._end = self._replica_manager.end_transaction
        self.refused = 0
        self._replica_manager.end_transaction = self._refuse  # type: ignore[method-assign]

    def _refuse(self, *_: object) -> Appended:
        self.refused += 1
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def release(self) -> None:
        self._replica_manager.end_transaction = self._end  # type: ignore[method-assign]


def test_the_first_batch_waits_while_the_markers_of_the_transaction_before_are_written() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        held = HeldMarkers(rig)
        await producer.end(NEW_END)
        await until(lambda: held.refused)
        before = rig.control.transaction_coordinator
        waiting = [
            asyncio.create_task(producer.produce(b"b", version=NEW, partition=number))
            for number in (0, 1)
        ]
        await until(lambda: producer.asked == 3)
        assert before is rig.control.transaction_coordinator
        assert not any(task.done() for task in waiting)
        held.release()
        assert await asyncio.gather(*waiting) == [(OK, 2), (OK, 0)]
        await producer.end(NEW_END)
        assert [await producer.committed(n) for n in (0, 1)] == [[b"a", b"b"], [b"b"]]

    run(test, **SETTINGS)


@pytest.mark.parametrize(
    ("version", "code"),
    [(OLD, ErrorCode.NOT_ENOUGH_REPLICAS), (NEW, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_a_client_sends_again_when_the_markers_take_long(version: int, code: ErrorCode) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        held = HeldMarkers(rig)
        await producer.end(NEW_END)
        late = producer.batch(b"b", partition=1)
        assert await producer.send(late, version, 1) == (code, -1)
        held.release()
        while (answer := await producer.send(late, NEW, 1))[0] == code:
            pass
        assert answer == (OK, 0)

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, ABORTABLE, NEW])
def test_a_fenced_producer_is_refused_where_no_marker_was_written(version: int) -> None:
    async def test(rig: Rig) -> None:
        zombie = await Producer.open(rig)
        await zombie.add(0)
        later = await Producer.another(rig)
        assert (later.producer_id, later.epoch) == (zombie.producer_id, zombie.epoch + 2)
        fenced = (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await zombie.produce(b"a", version=version) == fenced
        assert await later.produce(b"b", version=NEW) == (OK, 1)
        await later.end(NEW_END)
        assert await later.committed() == [b"b"]

    run(test, **SETTINGS)


def test_a_repetition_after_the_end_is_answered_with_the_old_offset() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        await producer.add(0)
        first, second = producer.batch(b"a"), producer.batch(b"b")
        assert await producer.send(first, OLD) == (OK, 0)
        await producer.end(OLD_END)
        assert await producer.committed() == [b"a"]
        assert await producer.send(first, OLD) == (OK, 0)
        assert await producer.send(second, OLD) == (ErrorCode.INVALID_TXN_STATE, -1)
        await producer.add(0)
        assert await producer.send(second, OLD) == (OK, 2)
        assert (await rig.status())["duplicates"] == 1

    run(test, **SETTINGS)


def test_without_verification_only_new_clients_are_asked_for() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        replica_manager = rig.brokers[1].replica_manager

        async def switch(value: str) -> None:
            settings = {"transaction_partition_verification_enable": value}
            await producer.client.alter(ResourceType.BROKER, "1", **settings)
            is_on = value == "true"
            await until(
                lambda: (
                    replica_manager.broker_config.transaction_partition_verification_enable == is_on
                )
            )

        await switch("false")
        assert await producer.produce(b"a", version=OLD) == (OK, 0)
        assert producer.asked == 0
        assert await producer.produce(b"b", version=NEW, partition=1) == (OK, 0)
        assert producer.asked == 1
        await producer.end(NEW_END)
        assert await producer.committed(1) == [b"b"]
        # The coordinator knows nothing of partition 0, which is what the setting gives up.
        assert producer.partition(0).last_stable_offset == 0
        await switch("true")
        assert await producer.produce(b"c", version=OLD, partition=1) == (
            ErrorCode.INVALID_TXN_STATE,
            -1,
        )

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_compacted_topic_checks_keys_before_it_asks(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, cleanup_policy="compact")
        if version == OLD:
            await producer.add(0)
        first = producer.batch(b"a")
        keyless = batch(
            b"x",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        assert await producer.send(keyless, version) == (ErrorCode.INVALID_RECORD, -1)
        assert producer.asked == 0
        gate = Gate(rig)
        waiting = [asyncio.create_task(producer.send(first, version))]
        waiting += [
            asyncio.create_task(producer.produce(b"%d" % n, version=version)) for n in range(4)
        ]
        await until(lambda: gate.waiting)
        gate.opened.set()
        assert await asyncio.gather(*waiting) == [(OK, n) for n in range(5)]
        assert gate.waiting == [producer.producer_id]
        await producer.end(NEW_END if version == NEW else OLD_END)
        assert await producer.committed() == [b"a", b"0", b"1", b"2", b"3"]

    run(test, **SETTINGS)


@pytest.mark.parametrize("count", [3, 70])
def test_partitions_of_one_request_have_their_own_outcomes(count: int) -> None:
    """70 partitions are appended in slices."""

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=count)
        left_out = 1
        await producer.add(*(n for n in range(count) if n != left_out))
        batches = {n: producer.batch(b"%d" % n, partition=n) for n in range(count)}
        expected: list[Answer] = [(OK, 0)] * count
        expected[left_out] = (ErrorCode.INVALID_TXN_STATE, -1)
        assert answers_of(await producer.ask(batches, OLD)) == expected
        await producer.end(OLD_END)
        assert [await producer.committed(n) for n in range(count)] == [
            [] if n == left_out else [b"%d" % n] for n in range(count)
        ]

    run(test, **SETTINGS)


@pytest.mark.parametrize("acks", [1, -1])
def test_many_partitions_are_added_by_one_request(acks: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=70)
        batches = {n: producer.batch(b"%d" % n, partition=n) for n in range(70)}
        assert answers_of(await producer.ask(batches, NEW, acks)) == [(OK, 0)] * 70
        await producer.end(NEW_END)
        assert await producer.committed(69) == [b"69"]

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_batches_are_refused_while_the_coordinator_is_away_and_taken_afterwards(
    version: int,
) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        if version == OLD:
            await producer.add(0)
        await rig.stop_control()
        away = (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        first, second = producer.batch(b"a"), producer.batch(b"b")
        assert await producer.send(first, version) == away
        await rig.start_control()
        while (answer := await producer.send(first, version)) == away:
            await asyncio.sleep(0.01)
        assert answer == (OK, 0)
        assert await producer.send(second, version) == (OK, 1)

    run(test, **SETTINGS)
