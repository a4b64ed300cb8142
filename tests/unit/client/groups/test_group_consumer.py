"""Consumers of groups against real servers with a tiny coordinator."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import ConsumedRecord
from sparklog.client.data_client import DataClient
from sparklog.client.groups import (
    AsyncConsumer,
    OffsetAndMetadata,
    RebalanceListener,
    group_member,
)
from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.logged import messages_of
from tests.unit.client.groups.group_cluster import (
    FIND_COORDINATOR,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    GroupCluster,
)
from tests.unit.client.small_cluster import run_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FETCH = 1


def run(test: Callable[[GroupCluster, ClusterClient], Any], **options: Any) -> None:
    async def with_topic(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        await test(cluster, client)

    run_cluster(with_topic, kind=GroupCluster, **options)


async def fill(client: ClusterClient, *numbers: int) -> None:
    """One batch per number, in turns to both partitions."""
    for number in numbers:
        batch = encode_batch([Record(value=b"%d" % number, key=b"k", timestamp=1000 + number)])
        await DataClient(client).produce(TopicPartition("t", number % 2), [batch])


def consumer(client: ClusterClient, **options: Any) -> AsyncConsumer:
    defaults = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
        "fetch_max_wait_ms": 50,
    }
    return AsyncConsumer(client, **{**defaults, **options})


async def read(from_: AsyncConsumer, count: int) -> list[int]:
    found: list[ConsumedRecord] = []
    while len(found) < count:
        found += await from_.poll(5)
    return sorted(int(record.value or b"") for record in found)


async def poll_until(condition: Callable[[], bool], *consumers: AsyncConsumer) -> None:
    while not condition():
        for each in consumers:
            await each.poll(0.02)


@pytest.mark.parametrize(
    "max_versions",
    [{}, {FIND_COORDINATOR: 3, OFFSET_FETCH: 7, OFFSET_COMMIT: 2, JOIN_GROUP: 0, LEAVE_GROUP: 2}],
    ids=["newest", "older"],
)
def test_what_was_read_is_committed_at_the_end(max_versions: dict[int, int]) -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, *range(10))
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            assert await read(ours, 10) == [*range(10)]
            assert cluster.committed == {}
        assert cluster.committed == {T0: 5, T1: 5}
        assert cluster.coordinator.seats == {}
        await fill(client, 10, 11)
        async with consumer(client) as again:
            again.subscribe(["t"])
            assert await read(again, 2) == [10, 11]
            assert await again.committed([T0]) == {T0: OffsetAndMetadata(offset=5)}

    run(test, max_versions=max_versions)


def test_two_members_share_and_the_listener_may_commit() -> None:
    class Commits(RebalanceListener):
        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await first.commit()
            told.append(partitions)

    told: list[frozenset[TopicPartition]] = []
    first: AsyncConsumer

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        nonlocal first
        await fill(client, *range(4))
        async with consumer(client, enable_auto_commit=False) as first, consumer(client) as second:
            first.subscribe(["t"], listener=Commits())
            assert await read(first, 4) == [*range(4)]
            second.subscribe(["t"])
            await poll_until(
                lambda: len(first.assignment) == len(second.assignment) == 1, first, second
            )
            assert cluster.committed == {T0: 2, T1: 2}
            assert told == [frozenset({T0, T1})]
            await second.close()
            await poll_until(lambda: len(first.assignment) == 2, first)

    run(test)


def test_a_coordinator_that_moves_takes_commits_and_members_with_it() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, *range(4))
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            await read(ours, 4)
            generation = cluster.coordinator.generation
            cluster.coordinator_id = 2
            await ours.commit()
            assert cluster.committed == {T0: 2, T1: 2}
            cluster.coordinator_id = 1
            await fill(client, 4, 5)
            assert await read(ours, 2) == [4, 5]
            await ours.commit()
            assert cluster.coordinator.generation == generation

    run(test)


def test_a_member_that_was_forgotten_loses_its_partitions_and_joins_again() -> None:
    class Lost(RebalanceListener):
        def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
            lost.append(partitions)

    lost: list[frozenset[TopicPartition]] = []

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        async with consumer(client, heartbeat_interval_ms=40_000) as ours:
            ours.subscribe(["t"], listener=Lost())
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            cluster.coordinator.seats.clear()
            with pytest.raises(KafkaError, match="other members may own the partitions") as no:
                await ours.commit({T0: 1})
            assert no.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            await poll_until(lambda: bool(cluster.coordinator.seats), ours)
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            await ours.commit({T0: 1})
        assert lost == [frozenset({T0, T1})]

    run(test)


def test_offsets_of_open_transactions_are_waited_for() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.committed = {T0: 1, T1: 1}
        cluster.refuse(OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE)
        await fill(client, *range(4))
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            assert await read(ours, 2) == [2, 3]

    run(test)


def test_a_failed_commit_in_the_background_is_told() -> None:
    told: list[Any] = []

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        async with consumer(client, enable_auto_commit=False) as ours:
            ours.subscribe(["t"])
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            cluster.refuse(OFFSET_COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE)
            offsets = {T0: OffsetAndMetadata(offset=1, metadata="x" * 5000)}
            ours.commit_async(offsets, lambda given, error: told.append((given, error)))
            await poll_until(lambda: bool(told), ours)
            ((given, error),) = told
            assert given == offsets
            assert error.code == ErrorCode.OFFSET_METADATA_TOO_LARGE

    run(test)


def test_commits_in_the_background_are_made_before_the_member_leaves() -> None:
    class CommitsLater(RebalanceListener):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            for offset in range(4):
                ours.commit_async({T1: offset})

    ours: AsyncConsumer

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        nonlocal ours
        async with consumer(client, enable_auto_commit=False) as ours:
            ours.subscribe(["t"], listener=CommitsLater())
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            for offset in range(4):
                ours.commit_async({T0: offset})
        assert cluster.committed == {T0: 3, T1: 3}
        assert cluster.coordinator.seats == {}

    run(test)


def test_partitions_that_stay_assigned_keep_their_positions_and_pauses() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, *range(6))
        async with consumer(client, group_id=None) as ours:
            await ours.assign({T0: 1})
            assert await read(ours, 2) == [2, 4]
            ours.pause(T0)
            await ours.assign([T0, T1])
            assert await read(ours, 3) == [1, 3, 5]
            assert (await ours.position(T0), ours.paused) == (3, {T0})
            await ours.assign({T0: 2})
            assert await read(ours, 1) == [4], "an offset begins anew"
            assert ours.assignment == {T0}

    run(test)


def test_a_listener_that_fails_leaves_the_poll_and_the_assignment_holds() -> None:
    class Fails(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            raise RuntimeError("the listener failed")

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, 0, 1)
        async with consumer(client) as ours:
            ours.subscribe(["t"], listener=Fails())
            with pytest.raises(RuntimeError, match="the listener failed"):
                await read(ours, 1)
            assert await read(ours, 2) == [0, 1]

    run(test)


def test_partitions_may_be_paused_before_they_have_a_position() -> None:
    class Pauses(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            ours.pause(T0)

    ours: AsyncConsumer

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        nonlocal ours
        await fill(client, *range(4))
        async with consumer(client) as ours:
            ours.subscribe(["t"], listener=Pauses())
            assert await read(ours, 2) == [1, 3]
            assert await ours.poll(0.2) == []
            ours.resume(T0)
            assert await read(ours, 2) == [0, 2]

    run(test)


def test_a_partition_that_is_paused_before_it_has_a_position_stays_so_across_a_seek() -> None:
    class PausesAndSeeks(RebalanceListener):
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            ours.pause(T0)
            await ours.seek(T0, 1)

    ours: AsyncConsumer

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        nonlocal ours
        await fill(client, *range(4))
        async with consumer(client) as ours:
            ours.subscribe(["t"], listener=PausesAndSeeks())
            assert await read(ours, 2) == [1, 3]
            assert ours.paused == {T0}
            assert await ours.poll(0.2) == []
            ours.resume(T0)
            assert await read(ours, 1) == [2]

    run(test)


def test_arrow_and_single_records_are_the_same() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, *range(10))
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            rows: list[dict[str, Any]] = []
            async for record in ours:  # one record, and the rest of its poll is given back
                rows.append({"value": record.value, "offset": record.offset} | row_of(record))
                break
            while len(rows) < 10:
                rows += (await ours.poll_arrow(5)).to_pylist()
            assert sorted(int(row["value"]) for row in rows) == [*range(10)]
            assert {(row["topic"], row["partition"], row["key"]) for row in rows} == {
                ("t", 0, b"k"),
                ("t", 1, b"k"),
            }

    run(test)


def row_of(record: ConsumedRecord) -> dict[str, Any]:
    return {"topic": record.topic, "partition": record.partition, "key": record.key}


def test_a_damaged_batch_stops_arrow_batches_until_it_is_skipped() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await fill(client, 0, 2, 4)
        log = cluster.logs[T0]
        first, end, batch = log.batches[1]
        log.batches[1] = (first, end, batch[:-1] + bytes([batch[-1] ^ 1]))
        async with consumer(client) as ours:
            await ours.assign({T0: 0})
            for _ in range(2):
                with pytest.raises(CorruptBatchError, match="offsets 1 to 1 cannot be read"):
                    await ours.poll_arrow(5)
                assert await ours.position(T0) == 0
        async with consumer(client, skip_undecodable=True) as ours:
            await ours.assign({T0: 0})
            assert (await ours.poll_arrow(5)).column("value").to_pylist() == [b"0", b"4"]
            assert ours.skipped.offsets == 1

    run(test)


def test_a_cancelled_poll_loses_nothing() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            poll = asyncio.ensure_future(ours.poll(30))
            await asyncio.sleep(0)
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            await fill(client, *range(4))
            assert await read(ours, 4) == [*range(4)]

    run(test)


def test_the_leader_looks_after_the_topics_of_the_others() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.add_topic("u")
        admin = Admin(client)
        leader, other = (consumer(client, metadata_max_age_ms=100) for _ in range(2))
        async with leader, other:
            leader.subscribe(["t"])
            await poll_until(lambda: len(leader.assignment) == 2, leader)
            other.subscribe(["u"])
            await poll_until(lambda: len(other.assignment) == 1, leader, other)
            await admin.create_partitions("u", 3)
            await poll_until(lambda: len(other.assignment) == 3, leader, other)

    run(test)


def test_a_refused_member_may_subscribe_again() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.refuse(JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED)
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            for _ in range(2):
                with pytest.raises(KafkaError, match="the group 'g' refuses this member"):
                    await read(ours, 1)
            ours.subscribe(pattern="t|u")
            await poll_until(lambda: len(ours.assignment) == 2, ours)
            assert ours.subscription == {"t"}
            await ours.unsubscribe()
            assert (ours.assignment, ours.subscription) == (set(), set())
            assert cluster.coordinator.seats == {}

    run(test)


def test_a_coordinator_that_is_not_found_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.refuse(FIND_COORDINATOR, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 7)
        async with consumer(client) as ours:
            ours.subscribe(["t"])
            await poll_until(lambda: len(ours.assignment) == 2, ours)

    run(test)
    (said,) = messages_of(caplog, group_member)
    assert "no coordinator of 'g': COORDINATOR_NOT_AVAILABLE" in said
