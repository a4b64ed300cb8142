"""A consumer that fetches while its application works, against real servers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from sparklog.client.data_client import DataClient
from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.types import OffsetSpec, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

FETCH = 1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
#: One batch of one record in every fetch.
SMALL = ConsumerOptions(partition_bytes_max=1, max_wait_ms=50)


async def fill(client: ClusterClient, tp: TopicPartition, count: int) -> None:
    for number in range(count):
        await DataClient(client).produce(tp, [encode_batch([Record(value=b"%d" % number)])])


async def fetched(consumer: Consumer) -> None:
    """Wait, without a poll, for all fetches that are under way."""
    while not all(task.done() for task in consumer._fetches):
        await asyncio.sleep(0)


def offsets(records: list[ConsumedRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


@pytest.mark.parametrize("ahead", [0, 1000])
def test_the_next_records_come_while_the_application_works_on_the_last(ahead: int) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 3)
        options = ConsumerOptions(partition_bytes_max=1, prefetch_bytes_max=ahead)
        async with Consumer(client, options) as consumer:
            await consumer.assign([T0])
            assert offsets(await consumer.poll(30)) == [(0, 0)]
            await fetched(consumer)
            assert len(cluster.asked(FETCH)) == (2 if ahead else 1)
            assert [consumer.position(T0), *offsets(await consumer.poll(30))] == [1, (0, 1)]
            assert offsets(await consumer.poll(30)) == [(0, 2)]
            await fetched(consumer)
            assert len(cluster.asked(FETCH)) == 3  # nothing is known to be behind the third record

    run_cluster(test)


def test_undecoded_records_are_fetched_ahead_too() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 2)
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0])
            assert [each.end for each in await consumer.poll_fetched(30)] == [1]
            await fetched(consumer)
            assert len(cluster.asked(FETCH)) == 2
            assert [each.end for each in await consumer.poll_fetched(0)] == [2]

    run_cluster(test)


async def seek_to_the_same_offset(consumer: Consumer) -> int | None:
    await consumer.seek(T0, 1)
    return 1


async def seek_back(consumer: Consumer) -> int | None:
    await consumer.seek(T0, OffsetSpec.EARLIEST)
    return 0


async def lose(consumer: Consumer) -> int | None:
    await consumer.remove([T0])
    return None


async def lose_and_get_back(consumer: Consumer) -> int | None:
    await consumer.remove([T0])
    consumer.add({T0: 2})
    return 2


async def pause(consumer: Consumer) -> int | None:
    consumer.pause([T0])
    return None


@pytest.mark.parametrize(
    "change", [seek_to_the_same_offset, seek_back, lose, lose_and_get_back, pause]
)
@pytest.mark.parametrize("has_ended", [False, True])
def test_what_was_fetched_ahead_is_given_only_if_it_is_still_wanted(
    change: Callable[[Consumer], Awaitable[int | None]], has_ended: bool
) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 1))
        await fill(client, T0, 4)
        await fill(client, T1, 2)
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0, T1])
            assert offsets(await consumer.poll(30)) == [(0, 0), (1, 0)]
            if has_ended:
                await fetched(consumer)
            expected = await change(consumer)  # the first offset of T0 that is given from now on
            found: list[tuple[int, int]] = []
            while (1, 1) not in found or (expected is not None and (0, expected) not in found):
                found += offsets(await consumer.poll(30))
            assert next((offset for number, offset in found if number == 0), None) == expected

    run_cluster(test)


def test_a_paused_partition_goes_on_where_it_was() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 1))
        await fill(client, T0, 4)
        await fill(client, T1, 4)
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0, T1])
            await consumer.poll(30)
            consumer.pause([T0])
            found: list[tuple[int, int]] = []
            while len(found) < 3:
                found += offsets(await consumer.poll(30))
            assert (found, consumer.position(T0)) == ([(1, 1), (1, 2), (1, 3)], 1)
            assert await consumer.poll(0.1) == []
            consumer.resume([T0])
            found = []
            while len(found) < 3:
                found += offsets(await consumer.poll(30))
            assert found == [(0, 1), (0, 2), (0, 3)]

    run_cluster(test)


def test_an_error_that_passed_while_the_application_worked_is_not_told() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 2)
        options = ConsumerOptions(partition_bytes_max=1, request_timeout_s=0.2)
        async with Consumer(client, options) as consumer:
            await consumer.assign([T0])
            await consumer.poll(30)
            cluster.refuse(FETCH, *[ErrorCode.LEADER_NOT_AVAILABLE] * 1000)
            await fetched(consumer)
            cluster.refuse(FETCH)
            assert offsets(await consumer.poll(30)) == [(0, 1)]

    run_cluster(test)


def test_records_that_were_fetched_come_before_the_error_behind_them() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 3)
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0])
            assert await consumer.poll(30, max_records=0) == []
            cluster.logs[T0].start = 3
            cluster.logs[T0].batches.clear()
            assert offsets(await consumer.poll(30)) == [(0, 0)]
            with pytest.raises(KafkaError, match="t-0 at offset 1 was refused"):
                await consumer.poll(30)

    run_cluster(test)


def test_a_partition_that_cannot_be_read_does_not_starve_the_others() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 1))
        await fill(client, T0, 1)
        await fill(client, T1, 2)
        first, end, batch = cluster.logs[T0].batches[0]
        cluster.logs[T0].batches[0] = (first, end, b"\xff" * len(batch))
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0, T1])
            found: list[tuple[int, int]] = []
            errors = 0
            while len(found) < 2:
                try:
                    found += offsets(await consumer.poll(30))
                except CorruptBatchError:
                    errors += 1
                    assert errors < 10
            assert found == [(1, 0), (1, 1)]
            assert errors

    run_cluster(test)


def test_a_cancelled_poll_leaves_no_node_without_fetches() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 1)
        async with Consumer(client, SMALL) as consumer:
            await consumer.assign([T0])
            outcome: object = None
            for turns in range(20):
                poll = asyncio.ensure_future(consumer.poll(30))
                for _ in range(turns):
                    await asyncio.sleep(0)
                poll.cancel()
                (outcome,) = await asyncio.gather(poll, return_exceptions=True)
                if isinstance(outcome, list):
                    break
                await consumer.seek(T0, 0)
            if not isinstance(outcome, list):
                outcome = await consumer.poll(30)
            assert offsets(outcome) == [(0, 0)]

    run_cluster(test)
