"""A leader is killed during a read and during a write: nothing is lost, nothing is doubled."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from dataframe_rig import Rig
from launcher_rig import broker_processes, is_whole, kill

from sparklog.dataframe.options import parse_read_options, parse_write_options
from sparklog.dataframe.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.dataframe.writer import GROUP_BYTES, TopicWriter

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
    while not is_whole(rig.cluster):
        assert time.monotonic() < end
        time.sleep(0.1)


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


def test_a_leader_dies_during_a_write(rig: Rig, topic: str) -> None:
    options = {"kafka.bootstrap.servers": rig.cluster.bootstrap_servers, "topic": topic}
    writer = TopicWriter(parse_write_options(options, None))
    size = GROUP_BYTES // 1000

    def rows() -> Iterator[pa.RecordBatch]:
        for group in range(GROUPS):
            if group == GROUPS // 2:
                kill_leader(rig, topic)
            values = [b"%-1000d" % (group * size + number) for number in range(size)]
            yield pa.RecordBatch.from_arrays([pa.array(values)], ["value"])

    writer.write(rows())
    found = rig.read(topic, schema="value binary, offset bigint")
    numbers = [
        row.number for row in found.selectExpr("int(trim(string(value))) AS number").collect()
    ]
    assert sorted(numbers) == list(range(GROUPS * size))
