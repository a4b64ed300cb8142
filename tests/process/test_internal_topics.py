"""Internal topics on real processes: replicas on all brokers, also on those that come later."""

from collections import Counter
from pathlib import Path

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.client.connection import Connection
from sparklog.client.event_loop_thread import EventLoopThread
from sparklog.cluster import Cluster, start_processes
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.wire.protocol.private import CreateInternalTopicRequest
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process


def create_offsets_topic(cluster: Cluster) -> None:
    """Ask the control plane as a broker does."""
    assert cluster._launcher is not None
    control = cluster._launcher.control_plane

    async def ask() -> int:
        connection = await Connection.open(control.endpoint, secret=control.secret, timeout_s=60)
        try:
            request = CreateInternalTopicRequest(name=CONSUMER_OFFSETS)
            answer: int = (await connection.request(request, timeout_s=60)).error_code
            return answer
        finally:
            connection.close()

    loop = EventLoopThread("asks")
    try:
        assert loop.run(ask()) == ErrorCode.NONE
    finally:
        loop.close()


def factors(client: BlockingClient) -> tuple[Counter[int], Counter[int]]:
    """How many partitions have so many replicas, and so many of them in sync."""
    topic = client.admin.describe_topics([CONSUMER_OFFSETS])[CONSUMER_OFFSETS]
    partitions = topic.partitions.values()
    return Counter(len(p.replicas) for p in partitions), Counter(len(p.isr) for p in partitions)


def test_the_offsets_topic_spreads_over_all_brokers(tmp_path: Path) -> None:
    with start_processes(3, data_dir=tmp_path) as cluster:
        create_offsets_topic(cluster)
        with BlockingClient(cluster.bootstrap_servers) as client:
            wait_for(lambda: factors(client) == ({3: 50}, {3: 50}))
            topic = client.admin.describe_topics([CONSUMER_OFFSETS])[CONSUMER_OFFSETS]
            leaders = Counter(partition.leader for partition in topic.partitions.values())
            assert sorted(leaders.values()) == [16, 17, 17]
            producer = client.producer()
            producer.send(CONSUMER_OFFSETS, b"a")
            with pytest.raises(KafkaError, match="clients cannot write to it"):
                producer.flush()
        assert cluster.topics() == []
    with start_processes(3, data_dir=tmp_path) as again:  # logs of compacted topics open again
        create_offsets_topic(again)
        with BlockingClient(again.bootstrap_servers) as client:
            wait_for(lambda: factors(client) == ({3: 50}, {3: 50}))


def test_its_replication_factor_follows_the_brokers(tmp_path: Path) -> None:
    with start_processes(1, data_dir=tmp_path) as cluster:
        create_offsets_topic(cluster)
        with BlockingClient(cluster.bootstrap_servers) as client:
            wait_for(lambda: factors(client) == ({1: 50}, {1: 50}))
            cluster.scale(3, progress=False)
            wait_for(lambda: factors(client) == ({3: 50}, {3: 50}))
            cluster.scale(2, progress=False)
            wait_for(lambda: factors(client) == ({2: 50}, {2: 50}))
