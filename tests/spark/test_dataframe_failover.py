"""Reads and writes while a leader is killed, and writes whose topic is deleted meanwhile."""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from sparklog.dataframe.options.options import parse_read_options, parse_write_options
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.dataframe.write.writer import GROUP_BYTES, TopicWriter
from sparklog.errors import KafkaError
from tests.spark.dataframe_rig import Rig
from tests.spark.launcher_rig import broker_processes, kill

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

RECORDS = 20_000
#: Few enough that a task has groups before and behind the kill.
GROUPS = 4


@pytest.fixture
def topic(rig: Rig) -> Iterator[str]:
    """Three replicas of one partition."""
    name = f"replicated-{next(rig.numbers)}"
    rig.cluster.create_topic(name, 1, 3, {"retention.ms": -1})
    yield name
    end = time.monotonic() + 60
    while not is_whole(rig, name):
        assert time.monotonic() < end
        time.sleep(0.1)


def is_whole(rig: Rig, topic: str) -> bool:
    """Every broker is there, and has what the others have."""
    (partition,) = rig.client.metadata([topic]).topics[topic].partitions.values()
    return len(partition.isr) == 3 and not any(node.fenced for node in rig.cluster.brokers())


def kill_leader(rig: Rig, topic: str) -> None:
    """Its supervisor starts it again."""
    leader = rig.client.metadata([topic]).topics[topic].partitions[0].leader
    port = rig.client.metadata([topic]).nodes[leader].port
    (process,) = [
        process
        for process in broker_processes()
        if any(link.laddr.port == port for link in process.net_connections() if not link.raddr)
    ]
    kill(process.pid)


def test_a_leader_dies_during_a_read(rig: Rig, topic: str) -> None:
    rig.fill(topic, RECORDS, value_bytes=100)
    reader = TopicReader(
        parse_read_options(
            {
                "kafka.bootstrap.servers": rig.cluster.bootstrap_servers,
                "subscribe": topic,
                "kafka.max.partition.fetch.bytes": "100000",
            },
            None,
        ),
        read_schema(include_headers=False),
    )
    (planned,) = reader.partitions()
    reading = reader.read(planned)
    batches = [next(reading)]
    kill_leader(rig, topic)
    batches += reading
    offsets = pa.Table.from_batches(batches).column("offset").to_pylist()
    assert offsets == list(range(RECORDS))


def write_while(rig: Rig, topic: str, happen: Callable[[], None]) -> int:
    """As a task writes; something happens behind half of its groups.  How many rows it wrote."""
    options = {"kafka.bootstrap.servers": rig.cluster.bootstrap_servers, "topic": topic}
    writer = TopicWriter(parse_write_options(options, None))
    size = GROUP_BYTES // 1000

    def rows() -> Iterator[pa.RecordBatch]:
        for group in range(GROUPS):
            if group == GROUPS // 2:
                happen()
            values = [b"%-1000d" % (group * size + number) for number in range(size)]
            yield pa.RecordBatch.from_arrays([pa.array(values)], ["value"])

    writer.write(rows())
    return GROUPS * size


def test_a_leader_dies_during_a_write(rig: Rig, topic: str) -> None:
    rows = write_while(rig, topic, lambda: kill_leader(rig, topic))
    found = rig.read(topic, schema="value binary").selectExpr("int(trim(string(value))) AS number")
    assert sorted(row.number for row in found.collect()) == list(range(rows))


def test_a_topic_is_deleted_during_a_write(rig: Rig) -> None:
    topic = rig.new_topic(1)
    with pytest.raises(KafkaError, match=f"topic '{topic}' does not exist; create it first"):
        write_while(rig, topic, lambda: rig.delete_topic(topic))


def test_a_topic_is_created_again_during_a_write(rig: Rig) -> None:
    topic = rig.new_topic(1)

    def replace() -> None:
        rig.delete_topic(topic)
        rig.cluster.create_topic(topic, 1)

    told = f"topic '{topic}' (was deleted and created again|does not exist)"
    with pytest.raises(KafkaError, match=told):
        write_while(rig, topic, replace)
