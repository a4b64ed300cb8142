"""A disk that refuses writes: the code for clients, the reason for whoever runs the broker."""

import errno

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.names import EPOCH_CHECKPOINT
from sparklog.executors.replica_manager import log_flusher, storage_errors
from sparklog.executors.replica_manager.storage_errors import PERIOD_MS, StorageErrorLogger
from sparklog.storage_backends.base import storage_error
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.batches import batch
from tests.support.logged import messages_of
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"capacity_bytes": 0}, "the disk is full; free space"),
        ({"read_only": True}, "the file system is read-only; mount it writable"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_refuses_writes_refuses_records_until_it_is_mended(
    caplog: pytest.LogCaptureFixture, fault: dict[str, object], reason: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        assert (await client.produce("t", batch(b"before"))).base_offset == 0
        for name, switched in fault.items():
            setattr(rig.disk.faults, name, switched)
        for _ in range(3):
            refused = await client.produce("t", batch(b"refused"))
            assert (refused.error_code, refused.base_offset) == (
                ErrorCode.KAFKA_STORAGE_ERROR,
                -1,
            )
            assert reason in (refused.error_message or "")
        assert await client.fetch("t", max_wait_ms=0) == (0, [b"before"])
        rig.disk.faults.clear()
        assert (await client.produce("t", batch(b"after"))).base_offset == 1

    run(test)
    said = messages_of(caplog, storage_errors)
    assert len(said) == 1
    assert said[0].startswith("t-0: cannot ")
    assert reason in said[0]


def test_the_same_partition_complains_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 1_000_000
    logger = StorageErrorLogger(lambda: now_ms)
    full = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    logger.log(first, full)
    logger.log(first, full)
    logger.log(second, full)
    now_ms += PERIOD_MS
    logger.log(first, full)
    assert messages_of(caplog, storage_errors) == ["t-0: full", "t-1: full", "t-0: full"]


def test_a_deletion_that_cannot_be_written_down_is_not_seen() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        await client.produce("t", batch(b"a"))
        await client.produce("t", batch(b"b"))
        rig.disk.faults.read_only = True
        for _ in range(2):
            assert await delete(client, 1) == ErrorCode.KAFKA_STORAGE_ERROR
            (partition,) = rig.brokers[1].replica_manager
            assert partition.log.log_start_offset == 0
        rig.disk.faults.clear()
        assert await delete(client, 1) == ErrorCode.NONE
        assert partition.log.log_start_offset == 1

    run(test)


def test_a_flush_waits_for_room_for_the_leader_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stays online: nothing is unknown about it, and only retention may free the disk."""
    monkeypatch.setattr(log_flusher, "POSTPONED_MS", 20)

    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", flush_messages="1")
        await rig.leads(1)
        full = storage_error("write", "x", OSError(errno.ENOSPC, "full"))
        refused = 0
        put = MemoryBackend.put

        def put_nothing(half: MemoryBackend, path: str, data: bytes) -> None:
            nonlocal refused
            if path.endswith(EPOCH_CHECKPOINT) and refused < 5:
                refused += 1
                raise full
            put(half, path, data)

        monkeypatch.setattr(MemoryBackend, "put", put_nothing)
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        assert refused == 5
        (partition,) = rig.brokers[1].replica_manager
        assert (partition.log.offline, partition.log.recovery_point) == (None, 1)
        assert rig.disk.read(f"broker-1/t-0/{EPOCH_CHECKPOINT}") == b"0\n1\n0 0\n"

    run(test)


def test_a_topic_is_opened_once_the_directory_of_one_of_its_name_can_be_deleted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As simulated seed 111 found: nothing else changed, and it had no leader until a restart."""
    monkeypatch.setattr("sparklog.executors.broker.OPEN_AGAIN_S", 0.005)

    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await client.create_topic("other")
        await rig.leads(2)
        await client.produce("t", batch(b"of the deleted one"))
        await client.produce("other", batch(b"stays"))
        rig.disk.faults.fail_next(1_000_000, under="-offset-checkpoint")
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000))
        await rig.leads(1)
        await client.create_topic("t")
        stays = "broker-1/t-0 stays"
        await until(lambda: any(stays in record.getMessage() for record in caplog.records))
        assert broker.replica_manager.get(TopicPartition("t", 0)) is None
        rig.disk.faults.clear()
        await rig.leads(2)
        assert await client.fetch("t", max_wait_ms=0) == (0, [])
        assert await client.fetch("other", max_wait_ms=0) == (0, [b"stays"])
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        await rig.crash_broker()
        await rig.start_broker(new=False)
        assert await (await rig.client()).fetch("t") == (0, [b"new"])

    run(test)


async def delete(client: Client, offset: int) -> int:
    """The error code of deleting up to an offset of t-0."""
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=(part,))
    response = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))
    ((result,),) = [topic.partitions for topic in response.topics]
    code: int = result.error_code
    return code
