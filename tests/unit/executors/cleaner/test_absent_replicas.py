"""Tombstones stay while a replica may hold an older value of their key."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.broker import Broker
from sparklog.executors.cleaner.job import CleaningJob
from sparklog.executors.cleaner.log_cleaner import LogCleaner
from sparklog.executors.partition import Partition
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.private_replicas import ReadCleanOffsetRequest
from sparklog.wire.records.builder import decode_records
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.cleaner.test_log_cleaner import ALONE, numbered, put, until_flushed

TP = TopicPartition("t", 0)
COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "300",
    "min_cleanable_dirty_ratio": "0.001",
    "min_insync_replicas": "1",
    "delete_retention_ms": "0",
}
GONE = b"gone"


def partition_of(broker: Broker) -> Partition:
    (partition,) = broker.replica_manager
    return partition


def values_in_log(rig: Rig, broker_id: int) -> list[bytes | None]:
    """All values of the key GONE in a replica's segments, oldest first."""
    found: list[bytes | None] = []
    for segment in partition_of(rig.brokers[broker_id]).log.segments:
        data = rig.disk_of(broker_id).read(segment.log_path)
        found += [each.value for each in decode_records(data) if each.key == GONE]
    return found


async def two_replicas(rig: Rig) -> Client:
    """Broker 1 leads a topic that broker 2 follows."""
    await rig.start_broker(1)
    await rig.start_broker(2)
    client = await rig.client(1)
    await client.create_topic("t", replication_factor=2, **COMPACT)
    await until(lambda: all(len(list(broker.replica_manager)) for broker in rig.brokers.values()))
    await until(lambda: partition_of(rig.brokers[1]).is_leader)
    return client


async def caught_up(rig: Rig) -> None:
    await until(
        lambda: (
            partition_of(rig.brokers[1]).log.log_end_offset
            == partition_of(rig.brokers[2]).log.log_end_offset
        )
    )


async def more(client: Client, turn: int) -> None:
    await put(client, *numbered(1000 * turn, 20))


async def clean(broker: Broker) -> None:
    await until_flushed(broker)
    await broker.log_cleaner.clean_next()


def test_a_tombstone_waits_for_a_replica_that_is_away() -> None:
    async def test(rig: Rig) -> None:
        client = await two_replicas(rig)
        await put(client, (GONE, b"OLD"), *numbered(0, 20))
        await caught_up(rig)
        await rig.crash_broker(2)
        await rig.report_broker_death(2)
        await until(lambda: partition_of(rig.brokers[1]).state.isr == (1,))  # type: ignore[union-attr]
        await put(client, (GONE, None))
        for turn in range(1, 5):
            await more(client, turn)
            await clean(rig.brokers[1])
        assert values_in_log(rig, 1) == [None]

        await rig.start_broker(2, new=False)
        await caught_up(rig)
        assert values_in_log(rig, 2) == [b"OLD", None]
        for turn in range(5, 9):
            await more(client, turn)
            await caught_up(rig)
            await clean(rig.brokers[2])
            await clean(rig.brokers[1])
        assert (values_in_log(rig, 1), values_in_log(rig, 2)) == ([], [])

    run(test, **ALONE)


def test_a_tombstone_waits_for_a_replica_that_is_not_cleaned() -> None:
    """In sync is not enough: a crash may take the tombstone from a follower that had it."""

    async def test(rig: Rig) -> None:
        client = await two_replicas(rig)
        await put(client, (GONE, b"OLD"), *numbered(0, 20), (GONE, None))
        for turn in range(1, 5):
            await more(client, turn)
            await clean(rig.brokers[1])
        await caught_up(rig)
        assert (values_in_log(rig, 1), values_in_log(rig, 2)) == ([None], [b"OLD", None])
        lowest = rig.brokers[1].replication.lowest_clean_offset
        assert await lowest(partition_of(rig.brokers[1])) == 0
        await clean(rig.brokers[2])
        clean_offset = partition_of(rig.brokers[2]).log.clean_offset
        assert clean_offset is not None
        assert clean_offset > 21
        assert await lowest(partition_of(rig.brokers[1])) == clean_offset
        await more(client, 5)
        await clean(rig.brokers[1])
        assert values_in_log(rig, 1) == []

    run(test, **ALONE)


@pytest.mark.parametrize("trouble", ["offline", "truncating", "no role", "a newer state", "closed"])
def test_a_replica_that_cannot_tell_is_taken_for_uncleaned(trouble: str) -> None:
    async def test(rig: Rig) -> None:
        await two_replicas(rig)
        asking, asked = partition_of(rig.brokers[1]), partition_of(rig.brokers[2])
        asked.log._clean_offset.offset = 7
        lowest = rig.brokers[1].replication.lowest_clean_offset
        assert await lowest(asking) == 7
        if trouble == "offline":
            asked.log.offline = OSError("disk")  # type: ignore[assignment]
        elif trouble == "truncating":
            asked.log.truncating = True
        elif trouble == "no role":
            asked.state = None
        elif trouble == "closed":
            await rig.brokers[2]._server.close()  # type: ignore[union-attr]
        else:
            assert asking.state is not None
            asking.state = replace(asking.state, partition_epoch=-5)
        assert await lowest(asking) == 0

    run(test, **ALONE)


def test_strangers_are_not_told_clean_offsets() -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        answer = await client.ask(ReadCleanOffsetRequest(topic_id=topic_id), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(test)


def test_the_only_replica_waits_for_nobody() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, (GONE, b"OLD"), (GONE, None))
        for turn in range(1, 4):
            await more(client, turn)
            await clean(rig.brokers[1])
        assert values_in_log(rig, 1) == []

    run(test, **ALONE)


def test_a_tombstone_outlives_the_cleaning_that_drops_the_older_values_here() -> None:
    """A replica that is copied during that cleaning may get an older value from this log."""
    jobs: list[CleaningJob] = []
    real = LogCleaner._job

    def job(self: LogCleaner, *given: Any) -> CleaningJob:
        jobs.append(real(self, *given))
        return jobs[-1]

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        with patch.object(LogCleaner, "_job", job):
            for turn in (1, 2):
                await more(client, turn)
                await clean(rig.brokers[1])
        first, second = jobs
        assert (first.expires_below, second.expires_below) == (0, first.end_offset)

    run(test, **ALONE)


def test_a_log_with_gaps_is_repaired_when_its_topic_is_not_compacted_any_more() -> None:
    async def test(rig: Rig) -> None:
        client = await two_replicas(rig)
        for number in range(20):
            await put(client, (b"u%d" % number, b"1"), (b"often", b"%d" % number))
        await caught_up(rig)
        for broker in rig.brokers.values():
            await clean(broker)
        segment = partition_of(rig.brokers[2]).log.segments[0]
        path = segment.log_path
        sound = rig.disk_of(2).read(path)
        assert rig.disk_of(1).read(partition_of(rig.brokers[1]).log.segments[0].log_path) == sound
        assert len(decode_records(sound)) < segment.next_offset
        await client.alter(ResourceType.TOPIC, "t", cleanup_policy="delete", retention_ms="-1")
        await until(lambda: not partition_of(rig.brokers[2]).config.compacts)
        ((_, node),) = rig.disk_of(2).files(path.rpartition("/")[2])
        for position in range(100, 200):
            node.damage(position, 0xA5)
        await until(lambda: rig.brokers[2].replica_manager.counters.damaged_ranges_found == 1)
        await until(lambda: rig.disk_of(2).read(path) == sound)

    run(test, **ALONE, log_scrub_interval_ms="50")
