"""ListOffsets, and the other requests about offsets, on tiered partitions."""

import asyncio
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers import list_offsets
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.remote_reads import NoRemoteReads
from sparklog.types import Isolation, OffsetSpec, OffsetTimestamp
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.batches import TIMESTAMP_MS, batch
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.broker.remote_rig import (
    LOCAL_START,
    RECORDS,
    REMOTE_DIR,
    TIERED,
    fill_and_move,
    stored,
    tiered,
)

#: All records that ``fill_and_move`` writes have this timestamp; later ones have it in the tests.
NOW, LATER = TIMESTAMP_MS, TIMESTAMP_MS + 1000
NOTHING = (0, -1, -1, -1)


async def find(
    client: Client,
    timestamp: int,
    *numbers: int,
    version: int | None = None,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    **more: Any,
) -> list[tuple[int, int, int, int]]:
    """Error code, offset, timestamp and leader epoch for each partition."""
    parts = tuple(
        ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        for number in numbers or (0,)
    )
    topic = ListOffsetsTopic(name="t", partitions=parts)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(isolation), topics=(topic,), **more
    )
    response = await client.ask(request, version)
    return [
        (found.error_code, found.offset, found.timestamp, found.leader_epoch)
        for found in response.topics[0].partitions
    ]


@pytest.mark.parametrize("version", [1, 4, 11])
def test_a_timestamp_is_searched_for_in_the_bucket_first(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        remote.times[0] = OffsetTimestamp(offset=1, timestamp=NOW, leader_epoch=0)
        epoch = 0 if version >= 4 else -1
        assert await find(client, NOW - 5, version=version) == [(0, 1, NOW, epoch)]
        # Without such a record there, the files here are searched.
        remote.times.clear()
        assert await find(client, NOW - 4, version=version) == [(0, LOCAL_START, NOW, epoch)]
        assert await find(client, LATER, version=version) == [NOTHING]
        assert remote.searched == [(0, NOW - 5), (0, NOW - 4), (0, LATER)]

    run(test, remote_dir=REMOTE_DIR)


def test_special_timestamps_and_local_logs_do_not_ask_the_bucket() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 2)
        await client.produce("t", batch(b"a"), partition=1)
        await client.produce("t", batch(b"b", timestamp=LATER), partition=1)
        assert await find(client, LATER, 1) == [(0, 1, LATER, 0)]
        found = {
            OffsetSpec.LATEST: (0, RECORDS, -1, 0),
            OffsetSpec.EARLIEST: (0, 0, -1, 0),
            OffsetSpec.EARLIEST_LOCAL: (0, LOCAL_START, -1, 0),
            OffsetSpec.LATEST_TIERED: (0, LOCAL_START - 1, -1, 0),
            OffsetSpec.EARLIEST_PENDING_UPLOAD: (0, LOCAL_START, -1, 0),
            OffsetSpec.MAX_TIMESTAMP: (0, LOCAL_START, NOW, 0),
        }
        for spec, expected in found.items():
            assert await find(client, spec) == [expected]
        assert remote.searched == []

    run(test, remote_dir=REMOTE_DIR)


def test_several_partitions_in_both_tiers() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 3)
        await fill_and_move(rig, client, 2)
        await client.produce("t", batch(b"a"), partition=1)
        remote.times[0] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the bucket is away")
        remote.times[2] = OffsetTimestamp(offset=3, timestamp=NOW, leader_epoch=0)
        assert await find(client, NOW, 0, 1, 2) == [
            (int(ErrorCode.KAFKA_STORAGE_ERROR), -1, -1, -1),
            (0, 0, NOW, 0),
            (0, 3, NOW, 0),
        ]

    run(test, remote_dir=REMOTE_DIR)


def test_a_reader_of_committed_records_finds_only_those() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        transactions = rig.brokers[1].replica_manager.find("t", 0).producers.transactions
        transactions.restart({2: 7})
        for offset, expected in ((1, (0, 1, NOW, 0)), (2, NOTHING), (3, NOTHING)):
            remote.times[0] = OffsetTimestamp(offset=offset, timestamp=NOW, leader_epoch=0)
            assert await find(client, NOW, isolation=Isolation.READ_COMMITTED) == [expected]
        assert await find(client, NOW) == [(0, 3, NOW, 0)]
        transactions.restart({})

    run(test, remote_dir=REMOTE_DIR)


def test_records_that_are_deleted_during_the_search_are_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        searched: list[int] = []

        async def find_timestamp(partition: Partition, timestamp: int) -> OffsetTimestamp:
            start = partition.log.log_start_offset
            searched.append(start)
            partition.delete_records(2)
            return OffsetTimestamp(offset=start, timestamp=NOW, leader_epoch=0)

        monkeypatch.setattr(remote, "find_timestamp", find_timestamp)
        assert await find(client, NOW) == [(0, 2, NOW, 0)]
        assert searched == [0, 2]

    run(test, remote_dir=REMOTE_DIR)


def test_what_a_bucket_finds_below_the_log_start_does_not_count() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        rig.brokers[1].replica_manager.find("t", 0).delete_records(2)
        remote.times[0] = OffsetTimestamp(offset=1, timestamp=NOW, leader_epoch=0)
        assert await find(client, NOW) == [(0, LOCAL_START, NOW, 0)]
        assert len(remote.searched) == 1

    run(test, remote_dir=REMOTE_DIR)


def test_a_role_that_ends_during_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)

        async def find_timestamp(partition: Partition, timestamp: int) -> OffsetTimestamp:
            rig.brokers[1].replica_manager.drop_roles()
            return OffsetTimestamp(offset=1, timestamp=NOW, leader_epoch=0)

        monkeypatch.setattr(remote, "find_timestamp", find_timestamp)
        not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await find(client, NOW) == [(not_leader, -1, -1, -1)]

    run(test, remote_dir=REMOTE_DIR)


@pytest.mark.parametrize("asked", [{"timeout_ms": 20}, {"version": 9}])
def test_a_search_that_takes_too_long(
    asked: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_offsets, "_REMOTE_TIMEOUT_MS", 20)

    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def find_timestamp(partition: Partition, timestamp: int) -> None:
            await answer

        monkeypatch.setattr(remote, "find_timestamp", find_timestamp)
        late = (int(ErrorCode.REQUEST_TIMED_OUT), -1, -1, -1)
        assert await find(client, NOW, **asked) == [late]
        assert not answer.cancelled(), "the process beside the broker goes on"
        answer.set_result(None)

    run(test, remote_dir=REMOTE_DIR)


def test_without_a_remote_dir_it_is_not_known() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(1, **TIERED)
        rig.brokers[1].replica_manager.remote_reads = NoRemoteReads()
        await fill_and_move(rig, client)
        error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await find(client, NOW) == [(error, -1, -1, -1)]
        assert await find(client, OffsetSpec.EARLIEST) == [(0, 0, -1, 0)]

    run(test, remote_dir=REMOTE_DIR)


async def delete(client: Client, offset: int) -> tuple[int, int]:
    """Error code and low watermark."""
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
    response = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


def test_records_are_deleted_in_either_tier() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        partition = rig.brokers[1].replica_manager.find("t", 0)
        remote.hold(0, 2, stored(2))
        assert await delete(client, 2) == (0, 2)
        assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (2, 4)
        assert await client.fetch("t", 1) == (int(ErrorCode.OFFSET_OUT_OF_RANGE), [])
        assert await client.fetch("t", 2) == (0, [b"remote 2"])
        assert await find(client, OffsetSpec.EARLIEST) == [(0, 2, -1, 0)]
        assert await delete(client, 1) == (0, 2)
        assert await delete(client, RECORDS + 1) == (int(ErrorCode.OFFSET_OUT_OF_RANGE), -1)
        # -1: everything, in both tiers.
        assert await delete(client, -1) == (0, RECORDS)
        assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (5, 5)
        await rig.crash_broker()
        await rig.start_broker(new=False)
        await rig.leads(1)
        log = rig.brokers[1].replica_manager.find("t", 0).log
        assert (log.log_start_offset, log.local_log_start_offset) == (RECORDS, RECORDS)

    run(test, remote_dir=REMOTE_DIR)


def test_ends_of_epochs_in_the_bucket_are_told() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(1, **TIERED)
        await client.produce("t", batch(b"first"))
        await client.produce("t", batch(b"second"))
        await rig.stop_broker()
        await rig.start_broker(new=False)
        await rig.leads(1)
        client = await rig.client()
        epoch = rig.brokers[1].replica_manager.find("t", 0).leader_epoch
        assert epoch > 0
        await client.produce("t", batch(b"third"))
        partition = rig.brokers[1].replica_manager.find("t", 0)
        partition.log.tiered_end_offset = 2
        partition.log.delete_local_segments(2, 0)
        wanted = tuple(
            OffsetForLeaderPartition(partition=0, leader_epoch=asked) for asked in (0, epoch)
        )
        topic = OffsetForLeaderTopic(topic="t", partitions=wanted)
        response = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,)))
        ends = [(p.error_code, p.leader_epoch, p.end_offset) for p in response.topics[0].partitions]
        assert ends == [(0, 0, 2), (0, epoch, 3)]

    run(test, remote_dir=REMOTE_DIR)


def test_the_size_of_a_log_is_that_of_its_files() -> None:
    """As in Kafka: DescribeLogDirs is about the disks of brokers."""

    async def test(rig: Rig) -> None:
        client, _, _ = await tiered(rig)
        response = await client.ask(DescribeLogDirsRequest(topics=None))
        ((described,),) = [t.partitions for r in response.results for t in r.topics]
        assert described.partition_size == len(batch(b"local 4"))

    run(test, remote_dir=REMOTE_DIR)
