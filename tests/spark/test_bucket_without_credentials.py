"""Executors without credentials read a bucket: the plan brings URLs that the leaders have signed.

The credentials are storage options of the cluster and nothing else.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.client.blocking import BlockingClient
from sparklog.driver.launcher.spark_internals import active_executors
from sparklog.types import OffsetSpec, TopicPartition
from tests.spark.dataframe_rig import SOON_TIERED, quick_session
from tests.spark.launcher_rig import bytes_out
from tests.support.s3_server import S3Server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.s3]

BROKERS = EXECUTORS = PARTITIONS = 2
#: Each executor has a core for a broker and a core for the task that reads a partition.
MASTER = f"local-cluster[{EXECUTORS},2,1024]"
TOPIC = "history"
RECORDS = 6_000
VALUE_BYTES = 200
CONFIGS = {
    "segment.bytes": "100000",
    "local.retention.bytes": "100000",
    "retention.ms": "-1",
}
#: Environment variables of AWS's libraries that give no access to anything.
HARMLESS = {"AWS_CA_BUNDLE", "AWS_DEFAULT_REGION", "AWS_REGION"}
#: A record, the executor whose task has read it, and the other variables of AWS in that task.
ROW = ["partition", "offset", "value", "executor", "variables"]


@pytest.fixture
def spark() -> Iterator[Any]:
    session = quick_session(MASTER, "bucket without credentials")
    try:
        wait_for(lambda: len(active_executors(session.sparkContext)) == EXECUTORS)
        yield session
    finally:
        session.stop()


@pytest.fixture
def cluster(
    spark: Any, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> Iterator[sparklog.Cluster]:
    with sparklog.start(
        spark,
        brokers=BROKERS,
        data_dir=tmp_path / "data",
        remote_dir=f"s3://{s3_bucket}/log",
        storage_options=s3_server.options,
        settings=SOON_TIERED,
    ) as started:
        started.create_topic(TOPIC, PARTITIONS, tiered=True, configs=CONFIGS)
        yield started


def test_tasks_on_executors_without_credentials_read_the_bucket(
    spark: Any, cluster: sparklog.Cluster, s3_server: S3Server, s3_bucket: str
) -> None:
    fill(cluster)
    wait_for(lambda: min(local_starts(cluster)) > RECORDS // PARTITIONS // 2)
    assert refusal_without_credentials(s3_server, s3_bucket) == 403
    starts = local_starts(cluster)
    expected = {
        (partition, offset): value(PARTITIONS * offset + partition)
        for partition, start in enumerate(starts)
        for offset in range(start)
    }
    before = bytes_out(cluster, TOPIC)
    for packed in ("true", "false"):
        spark.conf.set("spark.sparklog.packed.reads", packed)
        found = read(spark, cluster, starts)
        assert {(row.partition, row.offset): bytes(row.value) for row in found} == expected
        assert len(found) == len(expected)
        assert {row.variables for row in found} == {""}
        assert len({row.executor for row in found}) == EXECUTORS
    assert bytes_out(cluster, TOPIC) == before
    assert len(read(spark, cluster, starts, remoteReads="brokers")) == len(expected)
    assert bytes_out(cluster, TOPIC) >= before + len(expected) * VALUE_BYTES


def value(number: int) -> bytes:
    return b"%d" % number + b" " * (VALUE_BYTES - len(b"%d" % number))


def fill(cluster: sparklog.Cluster) -> None:
    """Record n is in partition n % 2."""
    with sparklog.Producer(cluster.bootstrap_servers, batch_bytes=20_000) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, value(number), partition=number % PARTITIONS)


def local_starts(cluster: sparklog.Cluster) -> list[int]:
    """The first offset of each partition that is on the brokers' disks."""
    wanted = {TopicPartition(TOPIC, n): int(OffsetSpec.EARLIEST_LOCAL) for n in range(PARTITIONS)}
    with BlockingClient(cluster.bootstrap_servers) as client:
        return [found.offset for found in client.list_offsets(wanted).values()]


def refusal_without_credentials(server: S3Server, bucket: str) -> int:
    """The HTTP status for an object of the bucket."""
    path = next((server.folder / bucket).rglob("*.log"))
    url = f"{server.endpoint}/{path.relative_to(server.folder)}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url)
    refused.value.close()
    return refused.value.code


def read(spark: Any, cluster: sparklog.Cluster, ends: list[int], **options: str) -> list[Any]:
    """Every record below ``ends``, as a ``ROW``."""

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = {name for name in os.environ if name.startswith("AWS_")}
        variables = " ".join(sorted(names - HARMLESS))
        executor = os.getppid()  # it forks the processes of its tasks
        for batch in batches:
            told = [pa.repeat(each, batch.num_rows) for each in (executor, variables)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *told], ROW)

    reader = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("endingOffsets", json.dumps({TOPIC: {str(n): end for n, end in enumerate(ends)}}))
        .options(**options)
    )
    records = reader.load().select("partition", "offset", "value")
    schema = "partition int, offset long, value binary, executor long, variables string"
    rows: list[Any] = records.mapInArrow(in_task, schema).collect()
    return rows
