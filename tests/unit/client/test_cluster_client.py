"""Routing, retries and deadlines of the cluster client and of the data client."""

import asyncio

import pytest

from sparklog.client import cluster_client as cluster_client_module
from sparklog.client.cluster_client import ClusterClient, parse_bootstrap
from sparklog.client.connection import Connection
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.fetch_api import Fetched, FetchFrom
from sparklog.client.produce_api import Produced
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.errors import ConnectError, ErrorCode, KafkaError, ProtocolError
from sparklog.types import Endpoint, OffsetSpec, OffsetTimestamp, TopicPartition
from sparklog.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from sparklog.wire.records.builder import decode_records
from tests.support.batches import batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

FETCH, PRODUCE, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID = 1, 0, 2, 3, 22
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def values(fetched: Fetched) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in decode_records(fetched.records)]


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client_module, "UNKNOWN_TOPIC_GRACE_S", 0.1)


def test_batches_go_to_the_leaders_and_come_back_as_they_were_sent() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        data_client = DataClient(client)
        produced = await data_client.produce_each({T0: [batch(b"a", b"b")], T1: [batch(b"c")]})
        assert produced == {T0: Produced(base_offset=0), T1: Produced(base_offset=0)}
        assert await data_client.produce(T0, [batch(b"d")]) == Produced(base_offset=2)
        assert sorted(cluster.asked(PRODUCE)) == [1, 1, 2]
        fetched = await data_client.fetch_each({T0: FetchFrom(offset=1), T1: FetchFrom(offset=0)})
        found = {tp: values(f) for tp, f in fetched.items() if isinstance(f, Fetched)}
        assert found == {T0: [(0, b"a"), (1, b"b"), (2, b"d")], T1: [(0, b"c")]}
        one = await data_client.fetch(T0, 2)
        assert (values(one), one.high_watermark, one.log_start_offset) == ([(2, b"d")], 3, 0)

    run_cluster(test)


@pytest.mark.parametrize(
    "max_versions", [{PRODUCE: 3, FETCH: 4}, {PRODUCE: 12, FETCH: 12}, {PRODUCE: 9, FETCH: 11}]
)
def test_older_versions_work_too(max_versions: dict[int, int]) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        await data_client.produce(
            T0,
            [
                batch(b"a"),
            ],
        )
        assert values(await data_client.fetch(T0, 0)) == [(0, b"a")]
        used = {(key, version) for _, key, version in cluster.requests if key in max_versions}
        assert used == set(max_versions.items())

    run_cluster(test, max_versions=max_versions)


def test_a_moved_leader_is_found_again() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        await data_client.produce(T0, [batch(b"a")])
        cluster.move(T0, 2)
        assert await data_client.produce(T0, [batch(b"b")]) == Produced(base_offset=1)
        assert values(await data_client.fetch(T0, 0)) == [(0, b"a"), (1, b"b")]
        assert cluster.asked(PRODUCE) == [1, 1, 2]

    run_cluster(test)


def test_a_leader_that_comes_later_is_waited_for() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(-1,))
        produced = asyncio.ensure_future(DataClient(client).produce(T0, [batch(b"a")]))
        await asyncio.sleep(0.05)
        assert not produced.done()
        cluster.move(T0, 1)
        assert await produced == Produced(base_offset=0)

    run_cluster(test)


def test_a_lost_connection_is_opened_again_and_the_request_repeated() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(LIST_OFFSETS, None)
        found = await DataClient(client).list_offsets({T0: OffsetSpec.LATEST})
        assert found == {T0: OffsetTimestamp(offset=0, leader_epoch=0)}
        assert cluster.asked(LIST_OFFSETS) == [1, 1]

    run_cluster(test)


def test_retriable_errors_are_retried_until_the_deadline() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(PRODUCE, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
        with pytest.raises(KafkaError) as caught:
            await DataClient(client).produce(T0, [batch(b"a")], timeout_s=1.0)
        assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "t-0" in str(caught.value)
        assert len(cluster.asked(PRODUCE)) > 2

    run_cluster(test)


def test_final_errors_are_raised_at_once_with_the_partition_named() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(KafkaError, match=r"MESSAGE_TOO_LARGE.*t-0"):
            await DataClient(client).produce(T0, [batch(b"a")])
        with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE.*t-0"):
            await DataClient(client).fetch(T0, 5)
        assert (cluster.asked(PRODUCE), cluster.asked(FETCH)) == ([1], [1])

    run_cluster(test)


def test_an_error_that_the_caller_calls_final_is_not_retried() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(LIST_OFFSETS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE)
        found = await DataClient(client).find_offsets({T0: 5}, final=(ErrorCode.CORRUPT_MESSAGE,))
        error = found[T0]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert cluster.asked(LIST_OFFSETS) == [1, 1]

    run_cluster(test)


def test_a_duplicate_that_the_broker_forgot_counts_as_written() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(PRODUCE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert await DataClient(client).produce(T0, [batch(b"a")]) == Produced()

    run_cluster(test)


def test_unknown_topics_and_partitions_are_named_after_a_moment() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        with pytest.raises(KafkaError, match="topic 'missing' does not exist") as caught:
            await data_client.fetch(TopicPartition("missing", 0), 0)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="has 1 partition, no number 7"):
            await data_client.fetch(TopicPartition("t", 7), 0)
        with pytest.raises(KafkaError, match="'no spaces' is not a legal topic name"):
            await data_client.fetch(TopicPartition("no spaces", 0), 0)

    run_cluster(test, auto_create=False)


def test_one_bad_partition_does_not_spoil_the_others() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        data_client = DataClient(client)
        await data_client.produce(T0, [batch(b"a")])
        answers = await data_client.fetch_each({T0: FetchFrom(offset=0), T1: FetchFrom(offset=9)})
        good, bad = answers[T0], answers[T1]
        assert isinstance(good, Fetched)
        assert values(good) == [(0, b"a")]
        assert isinstance(bad, KafkaError)
        assert bad.code == ErrorCode.OFFSET_OUT_OF_RANGE

    run_cluster(test)


def test_missing_topics_are_created_only_on_request() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        data_client = DataClient(client)
        with pytest.raises(KafkaError, match="does not exist"):
            await data_client.produce(T0, [batch(b"a")])
        assert await data_client.produce(T0, [batch(b"a")], create=True) == Produced(base_offset=0)

    run_cluster(test)


def test_a_topic_that_was_created_again_is_found_under_its_new_id() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        await data_client.produce(T0, [batch(b"old")])
        cluster.delete_topic("t")
        cluster.add_topic("t")
        assert await data_client.produce(T0, [batch(b"new")]) == Produced(base_offset=0)
        assert values(await data_client.fetch(T0, 0)) == [(0, b"new")]

    run_cluster(test)


def test_a_fetch_waits_for_records_and_ends_without_them() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        assert values(await data_client.fetch(T0, 0, max_wait_ms=10)) == []
        waiting = asyncio.ensure_future(data_client.fetch(T0, 0, max_wait_ms=10_000))
        while len(cluster.asked(FETCH)) < 2:
            await asyncio.sleep(0)
        # On another lane: it does not wait for the fetch.
        await data_client.produce(T0, [batch(b"a")])
        assert values(await waiting) == [(0, b"a")]

    run_cluster(test)


def test_acks_0_does_not_wait_for_an_answer() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        data_client = DataClient(client)
        assert await data_client.produce(T0, [batch(b"a")], acks=0) == Produced()
        assert values(await data_client.fetch(T0, 0)) == [(0, b"a")]

    run_cluster(test)


def test_producer_ids_come_from_brokers_and_are_retried() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.refuse(INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = await DataClient(client).init_producer_id()
        assert found == ProducerIdentity(producer_id=1001, producer_epoch=0)
        assert 0 not in cluster.asked(INIT_PRODUCER_ID)

    run_cluster(test)


def test_the_cluster_is_found_while_any_bootstrap_address_answers() -> None:
    async def test(cluster: SmallCluster, _client: ClusterClient) -> None:
        cluster.add_topic("t")
        alive = Endpoint.parse(cluster.bootstrap)
        client = ClusterClient([Endpoint("127.0.0.1", 1), alive])
        view = await client.refresh(None, Deadline(30))
        assert (view.cluster_id, view.controller_id, sorted(view.nodes)) == ("small", 0, [0, 1, 2])
        assert sorted(view.topics) == ["t"]
        await client.close()

    run_cluster(test)


def test_a_bootstrap_address_that_died_does_not_matter_once_nodes_are_known() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        await client.refresh((), Deadline(30))
        cluster.add_topic("t", leaders=(2,))
        await cluster.stop_node(1)
        assert await DataClient(client).produce(T0, [batch(b"a")]) == Produced(base_offset=0)

    run_cluster(test)


def test_when_nobody_answers_every_address_is_named() -> None:
    async def main() -> None:
        client = ClusterClient("127.0.0.1:1,127.0.0.1:2")
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            await client.refresh(None, Deadline(0.1))
        await client.close()
        with pytest.raises(ConnectError, match="closed"):
            await client.refresh(None, Deadline(0.1))

    asyncio.run(main())


def test_an_api_that_the_node_does_not_serve_is_named() -> None:
    async def test(cluster: SmallCluster, _client: ClusterClient) -> None:
        connection = await Connection.open(Endpoint.parse(cluster.bootstrap))
        with pytest.raises(ProtocolError, match="does not serve DescribeLogDirsRequest"):
            await connection.request(DescribeLogDirsRequest())
        connection.close()

    run_cluster(test)


@pytest.mark.parametrize("text", ["", " , ", "nonsense", "host:", "host:99999"])
def test_bootstrap_texts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (Endpoint("h", 1), "h:1"),
        (Endpoint("10.0.0.1", 2), "10.0.0.1:2"),
        (Endpoint("::1", 3), "[::1]:3"),
    ],
)
def test_an_endpoint_prints_as_every_client_reads_it(endpoint: Endpoint, text: str) -> None:
    assert (str(endpoint), Endpoint.parse(text)) == (text, endpoint)
