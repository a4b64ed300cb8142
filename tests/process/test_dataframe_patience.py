"""What a DataFrame's task says of a broker that does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from sparklog.cluster import Cluster, start_processes
from sparklog.dataframe.options.options import parse_read_options, parse_write_options
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.dataframe.write.writer import TopicWriter
from sparklog.errors import SparklogError
from tests.support.running import ours

pytestmark = pytest.mark.process
ROWS = 1000


@contextmanager
def hanging(broker: psutil.Process) -> Iterator[None]:
    """The broker stands still."""
    broker.suspend()
    try:
        yield
    finally:
        broker.resume()


def write(cluster: Cluster, **options: str) -> None:
    """Rows 0 to ``ROWS`` as one task writes them."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"} | options
    values = pa.array([b"%-100d" % number for number in range(ROWS)])
    batch = pa.RecordBatch.from_arrays([values], ["value"])
    TopicWriter(parse_write_options(given, None)).write(iter([batch]))


def test_who_waits_in_vain_is_told_for_what_and_how_to_wait_longer(tmp_path: Path) -> None:
    strangers = ours("sparklog.executors")
    with start_processes(1, data_dir=tmp_path) as cluster:
        (broker,) = (process for process in ours("sparklog.executors") if process not in strangers)
        cluster.create_topic("t", 1)
        write(cluster, **{"kafka.batch.size": "5000"})
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": "t",
            "kafka.max.partition.fetch.bytes": "10000",
            "kafkaConsumer.pollTimeoutMs": "20000",
        }
        patient = TopicReader(parse_read_options(options, None), read_schema(include_headers=False))
        (planned,) = patient.partitions()
        options["kafkaConsumer.pollTimeoutMs"] = "1000"
        reader = TopicReader(parse_read_options(options, None), read_schema(include_headers=False))
        told = "t-0: .* did not answer .*; option kafkaConsumer.pollTimeoutMs says for how long"
        with hanging(broker), pytest.raises(SparklogError, match=told):
            list(reader.read(planned))
        told = "did not answer .*; option kafka.delivery.timeout.ms says for how long"
        with hanging(broker), pytest.raises(SparklogError, match=told):
            write(cluster, **{"kafka.delivery.timeout.ms": "1000"})
        assert sum(batch.num_rows for batch in patient.read(planned)) == ROWS
