"""A shard loads its state machine from the log, and again when the role or an append goes wrong."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.coordinator import CoordinatorRecord, Now
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.storage_backends import blocking
from sparklog.types import Compression
from sparklog.wire.records.batch import read_header
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.support.waiting import until
from tests.unit.executors.coordinator.fake_state_machine import (
    KeyValueStore,
    keys_of,
    read,
    wait_for,
    write,
)
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led
from tests.unit.executors.coordinator.runtime_rig import (
    REPLICATED,
    TOPIC,
    Gate,
    RuntimeRig,
    append,
    run,
)

FOLLOWS = led(2, leader=OTHER, isr=(NODE, OTHER))


async def reload(rig: RuntimeRig, epoch: int = 3) -> None:
    """Lose the role, get it back, and load."""
    await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
    await rig.replicas.set_state(TOPIC, 0, led(epoch))
    await rig.is_active()


def code_of(rig: RuntimeRig, partition: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        rig.submit(read(), partition)
    return caught.value.code


@pytest.mark.parametrize("buffer_bytes", [1, 200, 1 << 20])
def test_a_new_leader_knows_what_the_log_holds(buffer_bytes: int) -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        for number in range(20):
            await rig.ask(write(f"k{number}"))
        append(rig, "zipped", compression=Compression.GZIP)
        append(rig, "k3", "k4", value=None)
        await reload(rig)
        expected = [f"k{number}" for number in range(20) if number not in (3, 4)]
        assert keys_of(await rig.ask(read())) == [*expected, "zipped"]
        assert len(rig.stores) == 2
        assert rig.store.loaded_at is not None
        assert rig.runtime.as_json() == {
            "shards": 1,
            "active_shards": 1,
            "loads": 2,
            "load_failures": 0,
            "records_written": 20,
        }

    run(test, load_buffer_bytes=lambda: buffer_bytes)


def test_gaps_of_a_compacted_log_do_not_matter() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        log = rig.replicas.partition(TOPIC).log
        # As compaction leaves it: offsets 1 to 8 are gone, and the batch of 9 has lost its records.
        empty = encode_batch([], base_offset=9, last_offset_delta=3, leader_epoch=1)
        full = encode_batch(
            [Record(key=b"z", value=b"v", offset=22, timestamp=1)],
            base_offset=20, leader_epoch=1, last_offset_delta=5,
        )  # fmt: skip
        log.append([empty, full], [read_header(empty), read_header(full)], 1)
        await reload(rig)
        assert keys_of(await rig.ask(read())) == ["a", "z"]

    run(test)


def end_transaction(rig: RuntimeRig, producer_id: int, kind: ControlType) -> None:
    marker = EndTxnMarker(control_type=kind, coordinator_epoch=1)
    end = TransactionEnd(producer_id=producer_id, producer_epoch=0, marker=marker)
    now_ms = rig.replicas.replica_manager.now_ms()
    rig.replicas.partition(TOPIC).end_transaction(end, now_ms=now_ms)


@pytest.mark.parametrize("buffer_bytes", [1, 1 << 20])
def test_the_records_of_a_transaction_wait_for_its_marker(buffer_bytes: int) -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        for producer_id in (7, 8, 9):
            append(
                rig, f"of {producer_id}", transactional=True, producer_id=producer_id,
                producer_epoch=0, base_sequence=0,
            )  # fmt: skip
        end_transaction(rig, 7, ControlType.ABORT)
        end_transaction(rig, 8, ControlType.COMMIT)
        await reload(rig)
        assert keys_of(await rig.ask(read())) == ["of 8"]
        assert rig.store.replayed == [CoordinatorRecord(key=b"of 8", value=b"v")]
        assert rig.store.pending == {9: [CoordinatorRecord(key=b"of 9", value=b"v")]}
        end_transaction(rig, 9, ControlType.COMMIT)
        await reload(rig, 5)
        assert keys_of(await rig.ask(read())) == ["of 8", "of 9"]
        assert rig.store.pending == {}

    run(test, load_buffer_bytes=lambda: buffer_bytes)


def test_what_is_appended_during_a_load_is_loaded_too() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
            await rig.replicas.set_state(TOPIC, 0, led(3))
            await until(lambda: gate.waiting == 1)
            append(rig, "b")
            gate.opened.set()
            await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a", "b"]

    run(test)


def test_a_load_that_the_log_has_overtaken_begins_anew() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        began, go_on = threading.Event(), threading.Event()

        class Slow(KeyValueStore):
            def loaded(self, now: Now) -> None:
                began.set()
                assert go_on.wait(30)
                super().loaded(now)

        rig.make = Slow
        await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await until(began.is_set)
        append(rig, "b")
        go_on.set()
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a", "b"]

    run(test)


def test_records_above_the_high_watermark_are_loaded_and_shown_when_they_are_replicated() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        waiting = rig.submit(write("a"))
        await until(lambda: rig.log_end == 1)
        both = led(2, isr=(NODE, OTHER))
        await rig.replicas.set_state(TOPIC, 0, both)  # elected again
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await waiting
        await rig.is_active()
        assert rig.store.values == {b"a": b"v"}
        reading = rig.submit(read())
        await asyncio.sleep(0)
        assert not reading.done()
        rig.replicas.replicate(TOPIC)
        assert keys_of(await reading) == ["a"]

    run(test)


def test_requests_are_told_of_a_load_and_of_partitions_that_others_lead() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
            assert code_of(rig) is ErrorCode.NOT_COORDINATOR
            assert code_of(rig, 5) is ErrorCode.NOT_COORDINATOR
            await rig.replicas.set_state(TOPIC, 0, led(3))
            assert code_of(rig) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await until(lambda: gate.waiting == 1)
            assert code_of(rig) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            gate.opened.set()
            await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a"]

    run(test)


def test_the_loop_goes_on_while_a_worker_reads_and_replays() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        replaying, go_on = threading.Event(), threading.Event()

        class Slow(KeyValueStore):
            def replay(self, record: CoordinatorRecord) -> None:
                replaying.set()
                assert go_on.wait(30)
                super().replay(record)

        rig.make = Slow
        await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await until(replaying.is_set)
        assert code_of(rig) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        go_on.set()
        await rig.is_active()

    run(test)


def test_a_role_that_is_lost_during_a_load_ends_the_load() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
            await rig.replicas.set_state(TOPIC, 0, led(3))
            await until(lambda: gate.waiting == 1)
            await rig.replicas.set_state(TOPIC, 0, led(4, leader=OTHER, isr=(NODE, OTHER)))
            assert code_of(rig) is ErrorCode.NOT_COORDINATOR
            gate.opened.set()
            await rig.replicas.set_state(TOPIC, 0, led(5))
            await rig.is_active()
        assert [store.loaded_at is None for store in rig.stores] == [False, True, False]
        assert rig.runtime.metrics.load_failures == 0

    run(test)


def test_a_changed_isr_in_the_same_epoch_loads_nothing() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        waiting = rig.submit(wait_for("a"))
        await rig.replicas.set_state(TOPIC, 0, replace(REPLICATED, isr=(NODE,), partition_epoch=2))
        await rig.ask(write("a"))
        await waiting
        assert len(rig.stores) == 1

    run(test)


def test_a_broker_that_may_not_serve_unloads_everything() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        waiting = rig.submit(wait_for("a"))
        rig.replicas.replica_manager.drop_roles()
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await waiting
        assert rig.store.unloaded is not None
        await rig.replicas.replica_manager.apply(rig.replicas.image, lead=False)
        await rig.replicas.replica_manager.apply(rig.replicas.image, lead=True)
        await rig.is_active()
        assert len(rig.stores) == 2

    run(test)


def test_a_deleted_topic_unloads_its_shards() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(led(), led())
        waiting = rig.submit(wait_for("a"), 1)
        await rig.replicas.delete(TOPIC)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await waiting
        assert rig.runtime.as_json()["shards"] == 0
        await rig.start(led())
        assert keys_of(await rig.ask(read())) == []

    run(test)


def test_a_load_that_fails_is_repeated_until_it_succeeds() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        failures = iter([StorageError("the disk is away"), KafkaError(ErrorCode.CORRUPT_MESSAGE)])

        class Failing(KeyValueStore):
            def replay(self, record: CoordinatorRecord) -> None:
                error = next(failures, None)
                if error is not None:
                    raise error
                super().replay(record)

        rig.make = Failing
        await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await until(lambda: rig.runtime.metrics.load_failures == 1)
        assert code_of(rig) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["a"]
        assert rig.runtime.metrics.load_failures == 2
        assert rig.runtime.metrics.loads == 2

    run(test)


def test_a_damaged_batch_is_not_loaded() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("a"))
        rig.replicas.damage(rig.tp)
        await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
        await rig.replicas.set_state(TOPIC, 0, led(3))
        await until(lambda: rig.runtime.metrics.load_failures > 0)
        assert code_of(rig) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)
