"""Decisions become batches, and responses wait until what they show is replicated."""

import asyncio
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRecord
from sparklog.metadata import ConfigChanged, TopicDeleted
from sparklog.types import Compression, ResourceType
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteResponse
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records
from tests.support.waiting import until
from tests.unit.executors.coordinator.fake_state_machine import (
    joined,
    keys_of,
    read,
    wait_for,
    write,
)
from tests.unit.executors.coordinator.replica_rig import NODE, led
from tests.unit.executors.coordinator.runtime_rig import REPLICATED, TOPIC, RuntimeRig, log_of, run


def batches_of(rig: RuntimeRig) -> list[int]:
    """The number of records of each batch in the log."""
    return [header.record_count for header, _ in iter_batches(log_of(rig))]


async def configure(rig: RuntimeRig, **settings: str) -> None:
    await rig.replicas.change(
        *(
            ConfigChanged(
                resource_type=int(ResourceType.TOPIC),
                resource_name=TOPIC,
                name=name.replace("_", "."),
                value=value,
            )
            for name, value in settings.items()
        )
    )


async def refused(future: "asyncio.Future[object]") -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await future
    return caught.value


def test_the_decisions_of_one_turn_share_a_batch() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        first = [rig.submit(write(f"a{number}")) for number in range(5)]
        assert rig.log_end == 0
        assert await asyncio.gather(*first) == [OffsetDeleteResponse()] * 5
        await rig.ask(write("b", "c"))
        assert batches_of(rig) == [5, 2]
        records = decode_records(log_of(rig))
        assert [record.key for record in records] == [b"a0", b"a1", b"a2", b"a3", b"a4", b"b", b"c"]
        assert {record.value for record in records} == {b"v"}
        assert all(record.timestamp > 1_600_000_000_000 for record in records)

    run(test)


def test_records_are_compressed_as_the_setting_says() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        ((header, _),) = iter_batches(log_of(rig))
        assert header.compression is Compression.GZIP

    run(test, compression=Compression.GZIP)


def test_each_shard_has_its_own_log() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(led(), led())
        await rig.ask(write("a"), 0)
        await rig.ask(write("b"), 1)
        assert keys_of(await rig.ask(read(), 0)) == ["a"]
        assert keys_of(await rig.ask(read(), 1)) == ["b"]
        assert list(rig.runtime.partitions) == [0, 1]

    run(test)


def test_a_response_waits_for_everything_that_was_written_before_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        assert keys_of(await rig.ask(read())) == []  # nothing was written
        writing = rig.submit(write("a"))
        same_turn = rig.submit(read())
        await until(lambda: rig.log_end == 1)
        later = rig.submit(read())
        beat = rig.submit(HeartbeatRequest())
        assert beat.result() == HeartbeatResponse()  # at_once
        await asyncio.sleep(0)
        assert [each.done() for each in (writing, same_turn, later)] == [False] * 3
        rig.replicas.replicate(TOPIC)
        assert writing.result() == OffsetDeleteResponse()
        assert keys_of(same_turn.result()) == keys_of(later.result()) == ["a"]
        at_once = rig.submit(read())
        assert keys_of(at_once.result()) == ["a"]
        delayed = rig.replicas.replica_manager.delayed_operations
        assert len(delayed.produces) == 0

    run(test)


def test_the_wait_is_bounded_and_the_state_stays() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        error = await refused(rig.submit(write("a")))
        assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.store.values == {b"a": b"v"}
        rig.replicas.replicate(TOPIC)
        assert keys_of(await rig.ask(read())) == ["a"]
        assert len(rig.stores) == 1

    run(test, commit_timeout_ms=lambda: 20)


def test_a_role_that_is_lost_refuses_the_responses_that_wait() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        written = rig.submit(write("a"))
        waiting = rig.submit(wait_for("b"))
        await until(lambda: rig.log_end == 1)
        unwritten = rig.submit(write("c"))
        partition = rig.replicas.partition(TOPIC)
        rig.replicas.replica_manager.carry_out(partition.drop_role())
        rig.runtime.role_changed(partition, None)
        for future in (written, waiting, unwritten):
            assert (await refused(future)).code is ErrorCode.NOT_COORDINATOR
        assert rig.log_end == 1

    run(test)


def test_a_write_wakes_the_requests_that_wait_for_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        waiting = [rig.submit(wait_for("a")) for _ in range(3)]
        writing = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        assert not any(each.done() for each in waiting)
        rig.replicas.replicate(TOPIC)
        await writing
        assert await asyncio.gather(*waiting) == [joined(b"a")] * 3

    run(test)


def test_a_decision_that_fits_into_no_batch_is_refused_alone() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await configure(rig, max_message_bytes="300")
        keys = [f"key{number}" for number in range(20)]
        fits = rig.submit(write("a"))
        too_large = rig.submit(write(*keys))
        assert (await refused(too_large)).code is ErrorCode.MESSAGE_TOO_LARGE
        await fits
        assert keys_of(await rig.ask(read())) == ["a"]
        assert len(rig.stores) == 1

    run(test)


def test_the_decisions_of_one_turn_are_not_divided_but_their_batches_are_bounded() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await configure(rig, max_message_bytes="200")
        sizes = (3, 3, 1, 2, 3)  # at most 5 records of 23 bytes fit beside 61 bytes of header
        await asyncio.gather(
            *(rig.submit(write(*(f"{n}{i}" for i in range(size)))) for n, size in enumerate(sizes))
        )
        assert batches_of(rig) == [3, 4, 5]

    run(test)


def test_a_large_decision_that_answers_nobody_is_divided() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        for number in range(20):
            await rig.replicas.create(f"t{number}", led())
            await rig.ask(write(f"t{number}"))
        await configure(rig, max_message_bytes="200")
        topics = [rig.replicas.image.topics[f"t{number}"] for number in range(20)]
        await rig.replicas.change(
            *(TopicDeleted(topic=each.name, topic_id=each.topic_id) for each in topics)
        )
        await until(lambda: not rig.store.values)
        assert keys_of(await rig.ask(read())) == []
        counts = batches_of(rig)[20:]
        assert sum(counts) == 20
        assert max(counts) < 20

    run(test)


def test_a_failed_append_drops_the_state_and_loads_what_the_log_has() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        waiting = rig.submit(wait_for("c"))
        rig.replicas.disk.faults.fail_next(1, "writev")
        writing = rig.submit(write("b"))
        reading = rig.submit(read())
        for future in (writing, reading, waiting):
            assert (await refused(future)).code is ErrorCode.NOT_COORDINATOR
        assert rig.store.unloaded is not None
        assert rig.store.values == {b"a": b"v", b"b": b"v"}
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a"]
        await rig.ask(write("d"))
        assert len(rig.stores) == 2

    run(test)


def test_a_failed_batch_takes_the_batches_behind_it_with_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await configure(rig, max_message_bytes="200")
        calls: list[str] = []

        def fail_second(operation: str, where: str) -> None:
            if operation == "writev":
                calls.append(where)
                if len(calls) == 2:
                    rig.replicas.disk.faults.fail_next(1, "writev")

        rig.replicas.disk.faults.slow = fail_second
        futures = [rig.submit(write(*(f"{n}{i}" for i in range(4)))) for n in range(3)]
        await futures[0]
        for future in futures[1:]:
            assert (await refused(future)).code is ErrorCode.NOT_COORDINATOR
        rig.replicas.disk.faults.clear()
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["00", "01", "02", "03"]

    run(test)


async def lack_replicas(rig: RuntimeRig) -> None:
    """The follower falls out of the in-sync replicas, and two of them are wanted."""
    await configure(rig, min_insync_replicas="2")
    await rig.replicas.set_state(TOPIC, 0, replace(REPLICATED, isr=(NODE,), partition_epoch=2))


async def get_replicas_back(rig: RuntimeRig, way: str) -> None:
    if way == "settings":
        await configure(rig, min_insync_replicas="1")
    else:
        await rig.replicas.set_state(TOPIC, 0, replace(REPLICATED, partition_epoch=3))


@pytest.mark.parametrize("way", ["follower", "settings"])
def test_without_enough_replicas_changes_are_refused_and_the_state_stays(way: str) -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        writing = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        rig.replicas.replicate(TOPIC)
        await writing
        waiting, soon = rig.submit(wait_for("b")), rig.submit(wait_for("c", 1))
        await lack_replicas(rig)
        with pytest.raises(KafkaError, match=r"min\.insync\.replicas") as caught:
            rig.submit(write("b"))
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert keys_of(await rig.ask(read())) == ["a"]
        assert await rig.ask(HeartbeatRequest(group_id="g")) == HeartbeatResponse()
        await asyncio.sleep(0.02)
        assert rig.store.passed == []  # time may bring changes, too
        await get_replicas_back(rig, way)
        assert (await refused(soon)).code is ErrorCode.REBALANCE_IN_PROGRESS
        writing = rig.submit(write("b"))
        await until(lambda: rig.log_end == 2)
        rig.replicas.replicate(TOPIC)
        await writing
        assert await waiting == joined(b"b")
        assert len(rig.stores) == 1

    run(test)


@pytest.mark.parametrize("way", ["follower", "settings"])
def test_an_append_that_finds_too_few_replicas_loads_the_state_once_there_are_enough(
    way: str,
) -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        await configure(rig, min_insync_replicas="2")
        writing = rig.submit(write("a"))  # to be appended at the end of this turn
        await lack_replicas(rig)
        assert (await refused(writing)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            rig.submit(read())
        await asyncio.sleep(0.15)  # the pause after a failed append
        assert len(rig.stores) == 1
        await get_replicas_back(rig, way)
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == []
        assert len(rig.stores) == 2

    run(test)


def test_too_few_replicas_after_the_append_refuse_the_response_and_keep_the_state() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        await configure(rig, min_insync_replicas="2")
        writing = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        await rig.replicas.set_state(TOPIC, 0, replace(REPLICATED, isr=(NODE,), partition_epoch=2))
        assert (await refused(writing)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(rig.stores) == 1
        assert rig.store.values == {b"a": b"v"}

    run(test)


def test_a_record_that_cannot_be_replayed_loads_the_state_again() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        waiting = rig.submit(wait_for("b"))
        error = await refused(rig.submit(write("poison")))
        assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await refused(waiting)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a"]
        assert rig.store.replayed == [CoordinatorRecord(key=b"a", value=b"v")]

    run(test)


def test_a_request_that_cannot_be_decided_is_refused_alone() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            rig.submit(HeartbeatRequest(group_id="bug"))
        assert await rig.ask(HeartbeatRequest(group_id="g")) == HeartbeatResponse()
        assert len(rig.stores) == 1

    run(test)


def test_a_stop_writes_what_was_decided_and_refuses_what_waits() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        waiting = rig.submit(wait_for("b"))
        writing = rig.submit(write("a"))
        await rig.runtime.close()
        assert await writing == OffsetDeleteResponse()
        assert (await refused(waiting)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            rig.submit(read())
        assert batches_of(rig) == [1]
        await rig.replicas.set_state(TOPIC, 0, led(3))
        assert rig.runtime.as_json()["shards"] == 0

    run(test)


def test_a_stop_answers_what_is_not_replicated_yet() -> None:
    """The broker's connections are closed after a while, so no response may wait for longer."""

    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        appended = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        written, reading = rig.submit(write("b")), rig.submit(read())
        await rig.runtime.close()
        for future in (appended, written, reading):
            assert future.done()
            assert (await refused(future)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert batches_of(rig) == [1, 1]
        assert len(rig.replicas.replica_manager.delayed_operations.produces) == 0

    run(test)


def test_a_stop_tells_of_what_was_replicated() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        writing = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        rig.replicas.replicate(TOPIC)
        await rig.runtime.close()
        assert await writing == OffsetDeleteResponse()

    run(test)
