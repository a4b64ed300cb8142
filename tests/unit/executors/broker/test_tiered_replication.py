"""Tiered partitions with two replicas on real brokers: a follower starts where the bucket ends."""

import asyncio

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors import broker as broker_module
from sparklog.executors.log import EpochEntry
from sparklog.executors.partition import Partition, TieredStart, TieredState
from sparklog.executors.replica_manager import apply_retention
from sparklog.executors.replication import Replication
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.private_replicas import ReadTieredStateRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.broker.remote_rig import (
    LOCAL_START,
    RECORDS,
    REMOTE_DIR,
    TIERED,
    ScriptedRemoteReads,
    fill_and_move,
    stored,
)
from tests.unit.executors.broker.test_replication import TP, in_sync, replica


class Bucket:
    """Where followers start; an error while it is away."""

    def __init__(self) -> None:
        self.found: TieredStart | None = None
        self.asked: list[tuple[TopicPartition, int, int]] = []

    async def find_start(self, partition: Partition, *starts: int) -> TieredStart:
        self.asked.append((partition.topic_partition, *starts))
        if self.found is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the bucket is away")
        return self.found


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The bucket of all brokers of a test."""
    found = Bucket()

    class TieredReplication(Replication):
        def __init__(self, *arguments: object, **more: object) -> None:
            more["remote_start"] = found.find_start
            super().__init__(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(broker_module, "Replication", TieredReplication)
    return found


def starts(partition: Partition) -> tuple[int, int, int]:
    log = partition.log
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


async def delete_records(client: Client, offset: int) -> DeleteRecordsPartitionResult:
    """Delete the records below an offset; the answer of the leader."""
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
    response = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=20_000))
    ((result,),) = [topic.partitions for topic in response.topics]
    return result


async def moved(rig: Rig) -> tuple[int, int, Client]:
    """Leader and follower of a tiered partition, the follower down; the leader's files begin at
    ``LOCAL_START``, above what the follower has."""
    for broker_id in (1, 2):
        await rig.start_broker(broker_id)
    await (await rig.client()).create_topic("t", replication_factor=2, **TIERED)
    leader = await in_sync(rig, (1, 2))
    follower = 3 - leader
    await rig.crash_broker(follower)
    await rig.report_broker_death(follower)
    await in_sync(rig, (leader,))
    client = await rig.client(leader)
    await fill_and_move(rig, client, broker_id=leader)
    return leader, follower, client


def start_at(rig: Rig, leader: int) -> TieredStart:
    """What the bucket would say: the leader wrote the state at each of its segments."""
    log = replica(rig, leader).log
    path = f"broker-{leader}/t-0/{LOCAL_START:020d}.snapshot"
    epochs = tuple(e for e in log.leader_epochs.entries if e.start_offset < LOCAL_START)
    return TieredStart(LOCAL_START, 0, epochs, rig.disk_of(leader).read(path))


def test_a_follower_starts_in_the_bucket_and_gets_in_sync(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        leader, follower, client = await moved(rig)
        await rig.start_broker(follower, new=False)
        await until(lambda: len(bucket.asked) >= 3)
        assert set(bucket.asked) == {(TP, 0, LOCAL_START)}
        assert starts(replica(rig, follower)) == (0, 0, 0)
        told = [r for r in caplog.records if "the bucket is away" in r.message]
        assert len(told) == 1
        bucket.found = start_at(rig, leader)
        await in_sync(rig, (1, 2))
        assert starts(replica(rig, follower)) == (0, LOCAL_START, RECORDS)
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        await until(lambda: replica(rig, follower).log.log_end_offset == RECORDS + 1)
        for broker_id in (leader, follower):
            assert replica(rig, broker_id).log.leader_epochs.entries[0] == EpochEntry(0, 0)
        # It restarts with what it took over, and does not ask the bucket again.
        asked = len(bucket.asked)
        await rig.stop_broker(follower)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        assert starts(replica(rig, follower)) == (0, LOCAL_START, RECORDS + 1)
        assert len(bucket.asked) == asked
        assert replica(rig, follower).log.leader_epochs.entries[0] == EpochEntry(0, 0)

    run(test, remote_dir=REMOTE_DIR)


def test_the_leader_tells_what_is_in_its_bucket(bucket: Bucket) -> None:
    async def test(rig: Rig) -> None:
        leader, follower, _ = await moved(rig)
        bucket.found = start_at(rig, leader)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        partition = replica(rig, follower)
        states = rig.brokers[follower].replication.tiered_states
        replica(rig, leader).log.tiered_end_offset = LOCAL_START - 1
        found = await states.ask(leader, [partition])
        assert found == {partition: TieredState(0, LOCAL_START, LOCAL_START - 1)}
        # A broker that does not lead, and a broker that nobody knows.
        wrong, unknown = [(await states.ask(i, [partition]))[partition] for i in (follower, 9)]
        assert isinstance(wrong, KafkaError)
        assert wrong.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert str(unknown) == "broker 9 is not known"
        # Clients are none of its business.
        request = ReadTieredStateRequest(topic_id=partition.topic_id, partition=0)
        refused = await (await rig.client(leader)).ask(request, 0)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(test, remote_dir=REMOTE_DIR)


def test_records_in_the_bucket_are_deleted_at_all_replicas(bucket: Bucket) -> None:
    async def test(rig: Rig) -> None:
        leader, follower, client = await moved(rig)
        bucket.found = start_at(rig, leader)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        result = await delete_records(client, 2)
        assert (result.error_code, result.low_watermark) == (0, 2)
        for broker_id in (leader, follower):
            assert starts(replica(rig, broker_id)) == (2, LOCAL_START, RECORDS)
        # A crash forgets neither start.
        await rig.crash_broker(leader)
        await rig.start_broker(leader, new=False)
        assert starts(replica(rig, leader)) == (2, LOCAL_START, RECORDS)

    run(test, remote_dir=REMOTE_DIR)


def test_a_follower_deletes_files_once_its_checkpoint_has_the_log_start(bucket: Bucket) -> None:
    """Otherwise deleted records would count as records in the bucket after a crash."""

    async def test(rig: Rig) -> None:
        leader, follower, client = await moved(rig)
        bucket.found = start_at(rig, leader)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        replica_manager, log = rig.brokers[follower].replica_manager, replica(rig, follower).log
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        await until(lambda: log.log_end_offset == RECORDS + 1)
        first, second = (log.segments[index].base_offset for index in (0, 1))
        await delete_records(client, second)
        await until(lambda: log.log_start_offset == second)
        apply_retention(replica_manager)
        assert log.segments[0].base_offset == first
        await replica_manager.checkpoints.write()
        apply_retention(replica_manager)
        assert log.segments[0].base_offset == second

    run(test, remote_dir=REMOTE_DIR)


def test_a_follower_that_begins_behind_deleted_records_does_not_miss_them_after_a_crash() -> None:
    async def test(rig: Rig) -> None:
        leader, follower, client = await moved(rig)
        await delete_records(client, RECORDS)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        await rig.crash_broker(leader)
        await rig.lose_power(follower)
        await rig.start_broker(follower, new=False)
        assert starts(replica(rig, follower)) == (RECORDS, RECORDS, RECORDS)

    run(test, remote_dir=REMOTE_DIR)


def test_a_follower_serves_records_from_the_bucket_too(bucket: Bucket) -> None:
    async def test(rig: Rig) -> None:
        leader, follower, _ = await moved(rig)
        bucket.found = start_at(rig, leader)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, (1, 2))
        replica_manager = rig.brokers[follower].replica_manager
        remote = ScriptedRemoteReads(replica_manager)
        replica_manager.remote_reads = remote
        reader = await rig.client(follower)
        waiting = asyncio.create_task(reader.fetch("t", 1, max_wait_ms=20_000))
        await until(lambda: remote.asked)
        remote.come(0, 1, stored(1))
        assert await waiting == (0, [b"remote 1"])
        # Old clients read from leaders only.
        code, _ = await reader.fetch("t", 1, version=10)
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test, remote_dir=REMOTE_DIR)
