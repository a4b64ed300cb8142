"""Fetches from preferred read replicas, and the return to the leader (KIP-392)."""

import pytest

from sparklog.client import preferred_read_replicas
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import ClusterView
from sparklog.client.data_client import DataClient
from sparklog.client.fetch_api import Fetched, FetchFrom
from sparklog.client.partition_results import value_or_raise
from sparklog.client.preferred_read_replicas import PreferredReadReplicas, given_rack, own_rack
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

FETCH = 1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = encode_batch([Record(value=b"v", timestamp=1000)])
#: An address of a network for documentation, which no host has (RFC 5737).
ELSEWHERE = "192.0.2.1"


async def filled(cluster: SmallCluster, client: ClusterClient, rack: str = "here") -> DataClient:
    """Broker 1 leads, broker 2 is the preferred read replica."""
    cluster.add_topic("t", leaders=(1, 1))
    cluster.preferred = {T0: 2}
    data_client = DataClient(client, given_rack(rack))
    await data_client.produce_each({T0: [BATCH], T1: [BATCH]})
    return data_client


def values(fetched: Fetched) -> list[bytes | None]:
    return [record.value for record in decode_records(fetched.records)]


def test_a_leader_is_asked_once_for_the_closest_replica() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        for _ in range(3):
            assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert cluster.asked(FETCH) == [1, 2, 2, 2]

    run_cluster(test)


def test_only_partitions_with_a_closer_replica_are_read_there() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        found = await data_client.fetch_each({T0: FetchFrom(offset=0), T1: FetchFrom(offset=0)})
        assert [values(value_or_raise(tp, found[tp])) for tp in (T0, T1)] == [[b"v"], [b"v"]]
        assert cluster.asked(FETCH) == [1, 2]

    run_cluster(test)


def test_without_a_rack_leaders_are_read() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client, rack="")
        assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert cluster.asked(FETCH) == [1]

    run_cluster(test)


@pytest.mark.parametrize("trouble", [ErrorCode.OFFSET_OUT_OF_RANGE, None])
def test_a_follower_that_refuses_or_breaks_off_is_left_alone_for_a_while(
    trouble: ErrorCode | None,
) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        cluster.refuse(FETCH, ErrorCode.NONE, trouble)
        for _ in range(2):
            assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert cluster.asked(FETCH) == [1, 2, 1, 1]

    run_cluster(test)


def test_a_follower_that_is_gone_is_left_alone_for_a_while() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        await data_client.fetch(T0, 0)
        await cluster.stop_node(2)
        for _ in range(2):
            assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert cluster.asked(FETCH) == [1, 2, 1, 1]

    run_cluster(test)


def test_a_follower_that_has_no_more_gives_way_to_the_leader() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert values(await data_client.fetch(T0, 1, max_wait_ms=0)) == []
        await data_client.produce(T0, [BATCH])
        assert values(await data_client.fetch(T0, 1)) == [b"v"]
        assert cluster.asked(FETCH) == [1, 2, 2, 1]

    run_cluster(test)


def test_what_the_leader_refuses_is_refused() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE.*t-0"):
            await data_client.fetch(T0, 9)
        assert cluster.asked(FETCH) == [1]

    run_cluster(test)


def test_leaders_are_asked_again_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferred_read_replicas, "LEADER_ONLY_SECONDS", 0.0)

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        cluster.refuse(FETCH, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert values(await data_client.fetch(T0, 0)) == [b"v"]
        assert cluster.asked(FETCH) == [1, 2, 1, 2]

    run_cluster(test)
    monkeypatch.setattr(preferred_read_replicas, "PREFERRED_SECONDS_MAX", 0.0)
    preferred = PreferredReadReplicas(given_rack("here"))
    preferred.prefer(T0, 2)
    assert preferred.node_of(T0, 1) == 1


def test_a_leader_that_sends_on_for_ever_has_nothing() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = await filled(cluster, client)
        cluster.preferred[T0] = 1
        assert values(await data_client.fetch(T0, 0)) == []
        assert cluster.asked(FETCH) == [1, 1, 1]

    run_cluster(test)


@pytest.mark.parametrize(
    ("racks", "expected"),
    [
        ({}, ""),
        ({1: "left"}, "left"),
        ({1: "left", 2: "left", 3: "right"}, "left"),
        ({1: "left", 2: "right"}, ""),
        ({3: "right"}, ""),
    ],
)
def test_the_rack_of_this_host_is_that_of_its_brokers(racks: dict[int, str], expected: str) -> None:
    nodes = {1: Endpoint("127.0.0.1", 1), 2: Endpoint("localhost", 2), 3: Endpoint(ELSEWHERE, 3)}
    assert own_rack(ClusterView(nodes=nodes, racks=racks)) == expected
