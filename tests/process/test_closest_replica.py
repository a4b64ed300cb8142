"""A DataFrame's task reads from the replica in its rack, and from the leader when that dies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.cluster import SUPERVISOR_MODULE, Cluster
from sparklog.dataframe.options.options import parse_read_options
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.driver.launcher.engines import UNLIMITED, ExecutorSlots, ProcessEngine
from sparklog.driver.launcher.launcher import Launcher, LaunchOptions
from sparklog.driver.launcher.member_calls import ClusterMemberCalls
from sparklog.driver.launcher.racks import Racks
from tests.support.running import ours, status_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process
TOPIC = "t"
RECORDS = 2000
#: Each a host of its own for the cluster, all of them this one.
RACKS = {"127.0.0.1": "left", "127.0.0.2": "middle", "127.0.0.3": "right"}


class ThreeHosts(ProcessEngine):
    """One executor for each rack."""

    def executors(self) -> tuple[ExecutorSlots, ...]:
        return tuple(
            ExecutorSlots(executor_id=rack, host=host, slots=UNLIMITED)
            for host, rack in RACKS.items()
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, each in a rack of its own, with a partition that is on all of them."""
    options = LaunchOptions(
        brokers=3, data_dir=str(tmp_path), host="127.0.0.1", racks=Racks(by_host=RACKS)
    )
    launcher = Launcher(options, ThreeHosts(SUPERVISOR_MODULE, "127.0.0.1"), ClusterMemberCalls)
    try:
        launcher.start()
        with Cluster(str(launcher.control_plane.endpoint), launcher=launcher) as started:
            started.create_topic(TOPIC, 1, 3)
            with BlockingClient(started.bootstrap_servers) as client, client.producer() as producer:
                for number in range(RECORDS):
                    producer.send(TOPIC, b"%-100d" % number, partition=0)
            yield started
    finally:
        launcher.stop("the test is over")
    assert ours(SUPERVISOR_MODULE) == []


def sent(cluster: Cluster) -> dict[int, int]:
    """Bytes of the topic that each broker has sent to consumers."""
    launcher = cluster._launcher
    assert launcher is not None
    control = launcher.control_plane
    calls = ClusterMemberCalls(control.endpoint, control.secret)
    try:
        found = {node.node_id: status_of(calls, node.endpoint) for node in cluster.brokers()}
    finally:
        calls.close()
    return {node: status["bytes_out"].get(TOPIC, 0) for node, status in found.items()}


def test_a_task_reads_from_its_rack(cluster: Cluster) -> None:
    nodes = {node.node_id: node for node in cluster.brokers()}
    assert {node.rack for node in nodes.values()} == set(RACKS.values())
    leader, near, _ = cluster.topic(TOPIC).partitions()[0].replicas
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": TOPIC,
        "kafka.client.rack": nodes[near].rack or "",
        "kafka.max.partition.fetch.bytes": "20000",
    }
    reader = TopicReader(parse_read_options(options, None), read_schema(include_headers=False))
    (planned,) = reader.partitions()
    before = sent(cluster)
    reading = reader.read(planned)
    batches = [next(reading)]
    read = sent(cluster)
    assert (read[leader], read[near] > before[near]) == (before[leader], True)
    port = nodes[near].endpoint.port
    (process,) = (
        process
        for process in ours("sparklog.executors")
        if any(link.laddr.port == port for link in process.net_connections() if not link.raddr)
    )
    process.kill()
    batches += reading
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(RECORDS))
    wait_for(lambda: len([n for n in cluster.brokers() if not n.fenced]) == 3)
