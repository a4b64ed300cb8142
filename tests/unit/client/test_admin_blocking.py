"""The admin client, and all clients for blocking code."""

import asyncio
import itertools
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sparklog.client.admin import Admin, ConfigEntry
from sparklog.client.blocking import BlockingClient
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import ConsumerOptions
from sparklog.client.event_loop_thread import EventLoopThread
from sparklog.errors import ClosedError, ConfigError, ConnectError, ErrorCode, KafkaError
from sparklog.service import status
from sparklog.service.handler import ApiHandler
from sparklog.types import OffsetSpec, OffsetTimestamp, TopicPartition
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

CREATE_TOPICS, FETCH = 19, 1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_topics_are_created_grown_configured_and_deleted_at_the_controller() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        admin = Admin(client)
        await admin.create_topic("t", 2, configs={"retention.ms": "5"})
        assert sorted(client.view.topics["t"].partitions) == [0, 1]
        await admin.create_partitions("t", 4)
        topics = await admin.list_topics()
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 4}
        await admin.alter_topic_configs("t", {"retention.ms": None, "segment.bytes": "1024"})
        configs = await admin.describe_topic_configs("t")
        assert configs["segment.bytes"] == ConfigEntry(
            name="segment.bytes",
            value="1024",
            source=1,
            read_only=False,
            documentation="Size at which a segment is rolled.",
        )
        assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("604800000", 5)
        await admin.delete_topics(["t"])
        assert await admin.list_topics() == {}
        assert {node for node, key, _ in cluster.requests if key in (19, 20, 37, 44)} == {0}

    run_cluster(test)


def test_a_topic_is_tiered_by_an_argument_or_by_a_setting() -> None:
    async def test(_: SmallCluster, client: ClusterClient) -> None:
        admin, setting = Admin(client), "remote.storage.enable"
        await admin.create_topic("plain")
        await admin.create_topic("tiered", tiered=True, configs={"local.retention.ms": "1"})
        await admin.create_topic("both", tiered=True, configs={setting: "TRUE"})
        await admin.create_topic("not", tiered=False)
        found = {
            name: (await admin.describe_topic_configs(name))[setting]
            for name in ("plain", "tiered", "both", "not")
        }
        assert {name: (each.value, each.source) for name, each in found.items()} == {
            "plain": ("false", 5),
            "tiered": ("true", 1),
            "both": ("true", 1),
            "not": ("false", 1),
        }
        with pytest.raises(ConfigError, match=r"remote\.storage\.enable=false differ; give one"):
            await admin.create_topic("neither", tiered=True, configs={setting: "false"})

    run_cluster(test)


def test_a_topic_is_served_once_its_leaders_have_heard_of_it() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        admin = Admin(client)
        await admin.create_topic("t", 2)
        cluster.refuse(FETCH, *[ErrorCode.UNKNOWN_TOPIC_ID] * 2)
        await admin.await_serving("t")
        assert sorted(cluster.asked(FETCH)) == [1, 1, 2, 2]
        asked_by_id = 13
        assert all(version >= asked_by_id for _, key, version in cluster.requests if key == FETCH)

    run_cluster(test)


def test_refusals_of_the_controller_are_raised_at_once() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        admin = Admin(client)
        await admin.create_topic("t")
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS: refused t"):
            await admin.create_topic("t")
        with pytest.raises(KafkaError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*'missing'"):
            await admin.delete_topics(["missing"])
        with pytest.raises(KafkaError, match="INVALID_PARTITIONS"):
            await admin.create_partitions("t", 1)
        with pytest.raises(KafkaError, match="'missing' does not exist"):
            await admin.describe_topics(["missing"])
        await admin.create_topic("dry", validate_only=True)
        assert sorted(await admin.list_topics()) == ["t"]

    run_cluster(test)


def test_a_controller_that_moved_or_restarts_is_waited_for() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.refuse(CREATE_TOPICS, ErrorCode.NOT_CONTROLLER)
        await Admin(client).create_topic("t")
        assert cluster.asked(CREATE_TOPICS) == [0, 0]

    run_cluster(test)


def test_the_cluster_and_its_nodes_are_described() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        admin = Admin(client)
        found = await admin.describe_cluster()
        assert (found.cluster_id, found.controller_id) == ("small", 0)
        assert [(node.node_id, node.fenced) for node in found.nodes] == [
            (0, False),
            (1, False),
            (2, False),
        ]
        configs = await admin.describe_broker_configs(2)
        assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("1", True)

    run_cluster(test)


class CountingCluster(SmallCluster):
    def further_apis(self, node_id: int) -> list[ApiHandler]:
        return [status.handler(lambda: {"role": "node", "remote_failures": 10 + node_id})]


def test_every_node_tells_its_counters_and_a_silent_one_has_none() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        admin = Admin(client)
        counted = {0: {"remote_failures": 10}, 1: {"remote_failures": 11}}
        assert await admin.status() == counted | {2: {"remote_failures": 12}}
        await cluster.stop_node(2)
        assert await admin.status() == counted | {2: {}}

    run_cluster(test, kind=CountingCluster)


def test_the_nodes_of_kafka_tell_no_counters() -> None:
    async def test(_: SmallCluster, client: ClusterClient) -> None:
        with pytest.raises(KafkaError, match=r"UNSUPPORTED_VERSION: .*only nodes of sparklog do"):
            await Admin(client).status()

    run_cluster(test)


def test_records_are_deleted_at_the_leaders() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        other = TopicPartition("t", 1)
        admin = Admin(client)
        cluster.logs[T0].append(memoryview(encode_batch([Record(), Record()])), 0)
        assert await admin.delete_records({T0: 1, other: -1}) == {T0: 1, other: 0}
        assert await admin.list_offsets({T0: OffsetSpec.EARLIEST}) == {
            T0: OffsetTimestamp(offset=1, leader_epoch=0)
        }

    run_cluster(test)


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    """A cluster on a loop of its own, for blocking callers."""
    thread = EventLoopThread("small-cluster")

    async def start() -> SmallCluster:
        small = SmallCluster()
        await small.start()
        return small

    small = thread.run(start())
    yield small
    thread.run(small.stop())
    thread.close()


def test_blocking_code_can_do_it_all(cluster: SmallCluster) -> None:
    with BlockingClient(cluster.bootstrap, timeout_s=30) as client:
        client.admin.create_topic("t")
        with client.producer() as producer:
            for number in range(2500):
                producer.send("t", b"%d" % number)
        with client.consumer(ConsumerOptions(max_wait_ms=50)) as consumer:
            consumer.assign([T0])
            values = [record.value for record in itertools.islice(consumer, 2500)]
            assert consumer.poll(0.01) == []
        assert values == [b"%d" % number for number in range(2500)]
        assert client.list_offsets({T0: OffsetSpec.LATEST})[T0].offset == 2500
        identity = client.init_producer_id()
        assert identity.producer_id > 1000
        produced = client.produce(T0, [encode_batch([Record(value=b"raw")])])
        fetched = client.submit(client.data_client.fetch(T0, produced.base_offset))
        (record,) = decode_records(client.result(fetched).records)
        assert (record.offset, record.value) == (2500, b"raw")
        assert sorted(client.metadata().topics) == ["t"]
        assert sorted(client.admin.list_topics()) == ["t"]


def test_a_failed_delivery_is_raised_by_the_blocking_flush(cluster: SmallCluster) -> None:
    with BlockingClient(cluster.bootstrap, timeout_s=30) as client:
        producer = client.producer()
        cluster.refuse(0, ErrorCode.INVALID_RECORD)
        producer.send("t", b"bad")
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            producer.flush()
        producer.close()


def test_what_is_closed_says_so_at_once(cluster: SmallCluster) -> None:
    """Not after the minute for which a silent cluster is tried."""
    client = BlockingClient(cluster.bootstrap)
    client.admin.create_topic("t")
    producer, consumer = client.producer(), client.consumer()
    consumer.assign([T0])
    consumer.close()
    producer.close()
    for closed, call in (
        ("consumer", consumer.poll),
        ("consumer", lambda: next(iter(consumer))),
        ("consumer", lambda: consumer.assign([T0])),
        ("producer", lambda: producer.send("t", b"never seen")),
    ):
        with pytest.raises(ClosedError, match=f"the {closed} is closed; make a new one"):
            call()
    client.close()
    client.close()
    started = time.monotonic()
    for call in (
        client.admin.list_topics,
        client.admin.describe_cluster,
        client.admin.describe_log_dirs,
        client.metadata,
        client.init_producer_id,
        lambda: client.admin.create_topic("u"),
        lambda: client.topic("t"),
        lambda: client.list_offsets({T0: OffsetSpec.LATEST, T1: OffsetSpec.LATEST}),
        lambda: client.fetch(T0, 0),
        lambda: client.produce(T0, [encode_batch([Record()])]),
        lambda: client.consumer().assign([T0]),
    ):
        with pytest.raises(ClosedError, match="the client is closed; make a new one"):
            call()
    assert time.monotonic() - started < 10


def test_a_call_under_way_ends_when_its_client_is_closed(cluster: SmallCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = BlockingClient(f"127.0.0.1:{silent.getsockname()[1]}")
        answer = client.submit(client.async_admin.list_topics())
        silent.accept()[0].close()  # the client has connected, and tries again
        client.close()
        with pytest.raises(ClosedError, match="the client is closed"):
            answer.result(10)


def test_a_call_that_is_stuck_ends_at_its_deadline_and_a_closed_loop_takes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = EventLoopThread("stuck")
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.client.event_loop_thread.GRACE_S", 0.01)
        with pytest.raises(KafkaError, match=r"REQUEST_TIMED_OUT: no answer within 0\.01 s"):
            thread.run(asyncio.sleep(60), 0.01)
    called = threading.Event()
    thread.call(called.set)
    assert called.wait(10)
    thread.close()
    with pytest.raises(ConnectError, match="closed"):
        thread.run(asyncio.sleep(0))
    with pytest.raises(ConnectError, match="closed"):
        thread.call(called.set)


def test_closing_a_loop_thread_cancels_what_runs_and_ends_the_thread() -> None:
    thread = EventLoopThread("closing")
    future = thread.submit(asyncio.sleep(60))
    thread.close()
    thread.close()
    assert future.cancelled()
    assert "closing" not in {t.name for t in threading.enumerate()}


def _in_child(
    inherited: BlockingClient, bootstrap: str, answers: "multiprocessing.Queue[str]"
) -> None:
    try:
        inherited.metadata()
    except ConnectError as error:
        answers.put(str(error))
    inherited.close()
    with BlockingClient(bootstrap, timeout_s=30) as fresh:
        answers.put(" ".join(sorted(fresh.metadata().topics)))
    answers.close()
    answers.join_thread()
    os._exit(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_makes_its_own_client(cluster: SmallCluster) -> None:
    with BlockingClient(cluster.bootstrap, timeout_s=30) as client:
        client.admin.create_topic("t")
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=_in_child, args=(client, cluster.bootstrap, answers))
        child.start()
        assert "made in another process" in answers.get(timeout=60)
        assert answers.get(timeout=60) == "t"
        child.join(60)
        assert child.exitcode == 0
        assert sorted(client.metadata().topics) == ["t"]
