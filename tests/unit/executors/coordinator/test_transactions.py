"""Records of transactions through a coordinator's runtime, and the markers that end them."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRecord, ResponseFuture, TransactionalProducer
from sparklog.executors.partition import Appended, TransactionEnd
from sparklog.storage_backends import blocking
from sparklog.types import NO_SEQUENCE, Compression
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteResponse
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records
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
    log_of,
    run,
)

PRODUCER = TransactionalProducer(producer_id=7, producer_epoch=3)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
FOLLOWS = led(2, leader=OTHER, isr=(NODE, OTHER))


def write_in(rig: RuntimeRig, *keys: str, epoch: int = 3) -> ResponseFuture:
    """Write keys in the transaction of the producer."""
    return rig.submit(write(*keys), producer=PRODUCER._replace(producer_epoch=epoch))


def end(
    rig: RuntimeRig, kind: ControlType, *, epoch: int = 3, coordinator: int = 1, partition: int = 0
) -> Appended:
    marker = EndTxnMarker(control_type=kind, coordinator_epoch=coordinator)
    return rig.runtime.end_transaction(
        partition, TransactionEnd(producer_id=7, producer_epoch=epoch, marker=marker)
    )


async def code_of(future: ResponseFuture) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await future
    return refused.value.code


def end_refusal(rig: RuntimeRig, **fields: int) -> ErrorCode:
    log_end = rig.log_end
    with pytest.raises(KafkaError) as refused:
        end(rig, COMMIT, **fields)
    assert rig.log_end == log_end
    return refused.value.code


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_what_a_transaction_writes_is_pending_until_its_marker(kind: ControlType) -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        assert await write_in(rig, "a", "b") == OffsetDeleteResponse()
        assert keys_of(await rig.ask(read())) == []
        appended = end(rig, kind)
        assert (appended.base_offset, appended.required_offset) == (2, None)
        assert keys_of(await rig.ask(read())) == (["a", "b"] if kind is COMMIT else [])
        assert rig.store.pending == {}
        end(rig, kind)  # the coordinator has lost the answer
        assert keys_of(await rig.ask(read())) == (["a", "b"] if kind is COMMIT else [])

    run(test)


def test_a_transaction_has_batches_of_its_own_without_sequence() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        before = rig.submit(write("a"))
        inside = write_in(rig, "b", "c")
        assert rig.log_end == 3, "both are written at once, in the order of the decisions"
        after = rig.submit(write("d"))
        for future in (before, inside, after):
            assert await future == OffsetDeleteResponse()
        end(rig, COMMIT)
        found = [
            (h.producer_id, h.producer_epoch, h.base_sequence, h.is_transactional, h.record_count)
            for h, _ in iter_batches(log_of(rig))
        ]
        assert found == [
            (-1, -1, NO_SEQUENCE, False, 1),
            (7, 3, NO_SEQUENCE, True, 2),
            (-1, -1, NO_SEQUENCE, False, 1),
            (7, 3, NO_SEQUENCE, True, 1),
        ]
        ((_, *_), (header, _), *_) = iter_batches(log_of(rig))
        assert header.compression is Compression.GZIP
        records = decode_records(log_of(rig))
        assert [record.key for record in records] == [b"a", b"b", b"c", b"d"]
        assert all(record.timestamp > 1_600_000_000_000 for record in records)
        assert rig.runtime.as_json()["records_written"] == 4

    run(test, compression=Compression.GZIP)


def test_a_marker_comes_behind_what_was_decided_before_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await write_in(rig, "a")
        overwriting = rig.submit(write("b"))
        assert end(rig, COMMIT).base_offset == 2
        await overwriting
        keys = [record.key for record in rig.store.replayed]
        assert keys == [b"b", b"a"]

    run(test)


def test_answers_wait_until_what_they_show_is_replicated() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        writing = write_in(rig, "a")
        rig.replicas.replicate(TOPIC)
        assert await writing == OffsetDeleteResponse()
        required = end(rig, COMMIT).required_offset
        assert required is not None
        assert required.offset == 2
        reading = rig.submit(read())
        assert not reading.done()
        rig.replicas.replicate(TOPIC)
        assert keys_of(reading.result()) == ["a"]

    run(test)


def test_a_fenced_producer_is_refused_and_the_state_stays() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await rig.ask(write("kept"))
        waiting = rig.submit(wait_for("other"))
        await write_in(rig, "a")
        end(rig, ABORT, epoch=4)
        assert await code_of(write_in(rig, "b")) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert end_refusal(rig) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert end_refusal(rig, epoch=4, coordinator=0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert keys_of(await rig.ask(read())) == ["kept"]
        assert (len(rig.stores), waiting.done()) == (1, False)

    run(test)


def test_a_refusal_waits_for_the_epoch_that_has_caused_it() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start(REPLICATED)
        end(rig, ABORT, epoch=4)
        late = write_in(rig, "a")
        await rig.replicas.set_state(TOPIC, 0, REPLICATED)
        assert not late.done()
        rig.replicas.replicate(TOPIC)
        assert await code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert rig.store.pending == {}

    run(test)


def test_a_batch_that_cannot_be_written_is_refused_alone() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        rig.replicas.disk.faults.fail_next(1, "writev")
        assert await code_of(write_in(rig, "a")) is ErrorCode.NOT_COORDINATOR
        huge = "x" * 2_000_000
        assert await code_of(write_in(rig, huge)) is ErrorCode.MESSAGE_TOO_LARGE
        rig.replicas.disk.faults.fail_next(1, "writev")
        assert end_refusal(rig) is ErrorCode.KAFKA_STORAGE_ERROR
        assert (rig.store.pending, len(rig.stores)) == ({}, 1)
        await write_in(rig, "b")
        end(rig, COMMIT)
        assert keys_of(await rig.ask(read())) == ["b"]

    run(test)


def test_nothing_is_written_behind_records_that_could_not_be_written() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        rig.submit(write("lost"))
        rig.replicas.disk.faults.fail_next(1, "writev")
        assert await code_of(write_in(rig, "a")) is ErrorCode.NOT_COORDINATOR
        await rig.is_active()
        rig.submit(write("lost"))
        rig.replicas.disk.faults.fail_next(1, "writev")
        assert end_refusal(rig) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == []

    run(test)


def test_a_marker_finds_what_was_pending_before_a_load() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        await write_in(rig, "a")
        await rig.replicas.set_state(TOPIC, 0, FOLLOWS)
        assert end_refusal(rig) is ErrorCode.NOT_COORDINATOR
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(TOPIC, 0, led(3))
            await until(lambda: gate.waiting == 1)
            assert end_refusal(rig) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            gate.opened.set()
            await rig.is_active()
        assert rig.store.pending == {7: [CoordinatorRecord(key=b"a", value=b"v")]}
        end(rig, COMMIT)
        assert keys_of(await rig.ask(read())) == ["a"]

    run(test)


def test_a_broker_that_does_not_coordinate_refuses_markers() -> None:
    async def test(rig: RuntimeRig) -> None:
        await rig.start()
        assert end_refusal(rig, partition=5) is ErrorCode.NOT_COORDINATOR
        await rig.runtime.close()
        assert end_refusal(rig) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_records_and_markers_that_cannot_be_replayed_load_the_state_again() -> None:
    class Broken(KeyValueStore):
        def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
            if self.loaded_at is not None and record.key == b"broken":
                raise RuntimeError("a record that breaks the state machine")
            super().replay_in_transaction(record, producer_id)

        def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
            if self.loaded_at is not None:
                raise RuntimeError("a marker that breaks the state machine")
            super().replay_transaction_end(producer_id, committed=committed)

    async def test(rig: RuntimeRig) -> None:
        rig.make = Broken
        await rig.start()
        assert await code_of(write_in(rig, "broken")) is ErrorCode.UNKNOWN_SERVER_ERROR
        await rig.is_active()
        end(rig, COMMIT)
        await until(lambda: len(rig.stores) == 3)
        await rig.is_active()
        assert keys_of(await rig.ask(read())) == ["broken"]

    run(test)
