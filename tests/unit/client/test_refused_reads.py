"""Reads that a broker refuses because of its storage: what a client says, and when."""

import asyncio

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import Consumer, ConsumerOptions
from sparklog.client.data_client import DataClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

FETCH, LIST_OFFSETS = 1, 2
T0 = TopicPartition("t", 0)
#: More refusals than a client has the time for.
ALWAYS = [ErrorCode.KAFKA_STORAGE_ERROR] * 1000


def test_the_error_says_where_the_reason_is() -> None:
    """The protocol has no text for it.  The reason may be a remote_dir that is away."""

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        hint = r"is tiered, its remote_dir does not answer; the log of the broker has the reason$"
        cluster.refuse(FETCH, *ALWAYS)
        with pytest.raises(KafkaError, match=rf"t-0 at offset 0 was refused: .* {hint}"):
            await DataClient(client).fetch(T0, 0, timeout_s=0.2)
        cluster.refuse(LIST_OFFSETS, *ALWAYS)
        with pytest.raises(KafkaError, match=rf"no offsets of t-0: .* {hint}"):
            await DataClient(client).list_offsets({T0: 7}, timeout_s=0.2)
        cluster.refuse(LIST_OFFSETS, ErrorCode.INVALID_REQUEST)
        with pytest.raises(KafkaError, match=r"no offsets of t-0$"):
            await DataClient(client).list_offsets({T0: 7}, timeout_s=0.2)

    run_cluster(test)


async def fill(client: ClusterClient, tp: TopicPartition) -> None:
    await DataClient(client).produce(tp, [encode_batch([Record(value=b"v")])])


def test_a_consumer_names_what_it_cannot_read_now() -> None:
    """Its polls return nothing until the errors have lasted for ``request_timeout_s``."""

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0)
        async with Consumer(client) as consumer:
            await consumer.assign([T0])
            cluster.refuse(FETCH, *ALWAYS)
            assert await consumer.poll(0.1) == []
            assert consumer.unreadable[T0].code is ErrorCode.KAFKA_STORAGE_ERROR
            cluster.refuse(FETCH)
            assert len(await consumer.poll(30)) == 1
            assert consumer.unreadable == {}
            cluster.refuse(FETCH, *ALWAYS)
            assert await consumer.poll(0.1) == []
            await consumer.remove([T0])
            assert consumer.unreadable == {}

    run_cluster(test)


def test_a_fetch_in_flight_tells_nothing_of_a_partition_that_was_taken_away() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0)
        options = ConsumerOptions(request_timeout_s=0.3)
        async with Consumer(client, options) as consumer:
            await consumer.assign([T0])
            cluster.refuse(FETCH, *ALWAYS)
            assert await consumer.poll(0.1) == []
            (fetch,) = consumer._fetches
            await consumer.remove([T0])
            await asyncio.wait([fetch])
            assert consumer.unreadable == {}

    run_cluster(test)
