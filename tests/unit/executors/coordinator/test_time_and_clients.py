"""Timers, clients that go, and topics that are deleted."""

import asyncio
from copy import deepcopy
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest, Decision, DeletedTopic, Now
from sparklog.metadata import TopicCreated, TopicDeleted
from sparklog.storage_backends import blocking
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.records.builder import decode_records
from tests.support.waiting import until
from tests.unit.executors.coordinator.fake_state_machine import (
    KeyValueStore,
    joined,
    keys_of,
    read,
    wait_for,
    write,
)
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led
from tests.unit.executors.coordinator.runtime_rig import (
    TOPIC,
    Gate,
    RuntimeRig,
    append,
    log_of,
    run,
)


def test_a_deadline_is_met_and_the_timer_armed_again() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        clock = rig.replicas.replica_manager.monotonic_ms
        began_ms = clock()
        late, soon = rig.submit(wait_for("a", 40)), rig.submit(wait_for("b", 10))
        for future, after_ms in ((soon, 10), (late, 40)):
            with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
                await future
            assert clock() >= began_ms + after_ms
        assert len(rig.store.passed) in (1, 2)  # one, if the machine stood still meanwhile
        assert rig.store.passed[0].monotonic_ms >= began_ms + 10
        assert rig.replicas.replica_manager.now_ms() - rig.store.passed[0].wall_ms < 60_000

    run(test)


def test_the_time_is_not_passed_before_a_deadline() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        waiting = rig.submit(wait_for("a", 30))
        await rig.ask(write("a"))
        assert await waiting == joined(b"a")
        later = rig.submit(wait_for("b", 60))
        with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
            await later
        assert len(rig.store.passed) == 1  # the timer of the first request found nothing due

    run(test)


def test_no_timer_outlives_its_state_machine() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        waiting = rig.submit(wait_for("a", 10))
        first = rig.store
        await rig.replicas.set_state(TOPIC, 0, led(2, leader=OTHER, isr=(NODE, OTHER)))
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await waiting
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await rig.is_active()
        with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
            await rig.submit(wait_for("a", 30))
        assert first.passed == []

    run(test)


def test_an_error_in_the_timer_is_not_repeated_at_once() -> None:
    class Broken(KeyValueStore):
        calls = 0

        def pass_time(self, now: Now) -> Decision:
            Broken.calls += 1
            raise RuntimeError("time cannot pass")

    async def test(rig: RuntimeRig) -> None:
        rig.make = Broken
        await rig.start()
        rig.submit(wait_for("a", 1))
        await until(lambda: Broken.calls == 1)
        served = [await rig.ask(HeartbeatRequest()) for _ in range(3)]
        assert len(served) == 3
        assert Broken.calls < 5

    run(test)


def test_a_request_carries_its_context() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(read())
        rig.submit(wait_for("a"))
        first, second = rig.store.requests
        assert first == CoordinatorRequest(
            request_id=first.request_id,
            body=read(),
            version=0,
            client_id="client",
            client_host="/host",
        )
        assert second.request_id != first.request_id

    run(test)


def test_a_client_that_has_gone_is_withdrawn() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        gone, stays = rig.submit(wait_for("a")), rig.submit(wait_for("a"))
        gone.cancel()
        await until(lambda: rig.store.withdrawn == [rig.store.requests[0].request_id])
        await rig.ask(write("a"))
        assert await stays == joined(b"a")
        assert len(rig.store.waiting) == 0

    run(test)


def test_a_client_that_goes_after_the_decision_is_not_withdrawn() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        writing = rig.submit(write("a"))
        writing.cancel()
        assert keys_of(await rig.ask(read())) == ["a"]
        assert rig.store.withdrawn == []

    run(test)


def test_deleted_topics_are_told_once() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        for name in ("a", "b", "c"):
            await rig.replicas.create(name, led())
            await rig.ask(write(name))
        ids = {name: rig.replicas.image.topics[name].topic_id for name in "ab"}
        await rig.replicas.delete("a")
        await rig.replicas.delete("b")
        await rig.replicas.create("b", led())  # another topic of the same name
        await until(lambda: list(rig.store.values) == [b"c"])
        assert keys_of(await rig.ask(read())) == ["c"]
        assert rig.store.deleted == [{DeletedTopic(name, ids[name])} for name in "ab"]

    run(test)


def test_topics_that_are_deleted_together_are_told_together() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        for name in ("a", "b"):
            await rig.replicas.create(name, led())
        ids = {name: rig.replicas.image.topics[name].topic_id for name in "ab"}
        await rig.replicas.change(
            *(TopicDeleted(topic=name, topic_id=ids[name]) for name in "ab"),
            TopicCreated(topic="b", topic_id=UUID(int=9), partitions=(led(),)),
        )
        assert rig.store.deleted == [{DeletedTopic(name, ids[name]) for name in "ab"}]

    run(test)


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_topics_are_told_before_the_partitions_follow_the_image(is_snapshot: bool) -> None:
    """Requests see the new image at once, so a state machine must not wait for the partitions."""

    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.replicas.create("a", led())
        deleted, gate = list(rig.store.deleted), Gate()
        if is_snapshot:
            rig.replicas.image = deepcopy(rig.replicas.image)
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            deleting = asyncio.create_task(rig.replicas.delete("a"))
            await until(lambda: rig.replicas.replica_manager.image.topic("a") is None)
            assert len(rig.store.deleted) == len(deleted) + 1
            gate.opened.set()
            await deleting

    run(test)


@pytest.mark.parametrize("is_new_there", [False, True])
def test_topics_that_were_deleted_before_a_load_are_found_after_it(is_new_there: bool) -> None:
    """Nobody, or another broker, coordinated the partition when the topic was deleted."""

    async def test(rig: RuntimeRig) -> None:
        rig.make = lambda: KeyValueStore(are_topics=True)
        await rig.start()
        for name in ("a", "b"):
            await rig.replicas.create(name, led())
            append(rig, name, value=rig.replicas.image.topics[name].topic_id.bytes)
        append(rig, "unknown")
        await rig.replicas.set_state(TOPIC, 0, led(2, leader=OTHER, isr=(NODE, OTHER)))
        await rig.replicas.delete("a")
        if is_new_there:
            await rig.replicas.create("a", led())
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await rig.is_active()
        await until(lambda: list(rig.store.values) == [b"b"])
        assert keys_of(await rig.ask(read())) == ["b"]
        records = decode_records(log_of(rig))
        assert [(each.key, each.value) for each in records[-2:]] == [
            (b"a", None),
            (b"unknown", None),
        ]

    run(test)


def test_topics_that_are_deleted_during_a_load_are_found_after_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        rig.make = lambda: KeyValueStore(are_topics=True)
        await rig.start()
        for name in ("a", "b"):
            await rig.replicas.create(name, led())
            append(rig, name, value=rig.replicas.image.topics[name].topic_id.bytes)
        await rig.replicas.set_state(TOPIC, 0, led(2, leader=OTHER, isr=(NODE, OTHER)))
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(TOPIC, 0, led(3))
            await until(lambda: gate.waiting == 1)
            deleting = asyncio.create_task(rig.replicas.delete("a"))
            await until(lambda: rig.replicas.image.topic("a") is None)
            gate.opened.set()
            await deleting
        await until(lambda: list(rig.store.values) == [b"b"])

    run(test)


def test_the_error_of_a_partition_that_is_not_led_names_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        with pytest.raises(KafkaError, match="__internal-7") as caught:
            rig.submit(read(), 7)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(test)
