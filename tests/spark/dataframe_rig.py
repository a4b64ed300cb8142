"""What the tests of DataFrames share: one Spark session, one cluster, and ways to use both."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from sparklog.client.blocking import BlockingClient
from sparklog.client.consumer import ConsumedRecord
from sparklog.cluster import Cluster, start
from sparklog.session import create_session
from sparklog.types import OffsetSpec, TopicPartition
from tests.spark.launcher_rig import statuses
from tests.support.raw_wire import RawWire
from tests.support.waiting import wait_for

#: Tests are over before a second compiler has paid off, in the driver and in executors.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_JVM = (
    f'--driver-java-options "{_ONE_COMPILER}" '
    f'--conf "spark.executor.extraJavaOptions={_ONE_COMPILER}" pyspark-shell'
)
FOREVER = {"retention.ms": -1}
#: The topics of a test may be tiered; their segments are in the bucket soon.
SOON_TIERED = {
    "remote.log.manager.task.interval.ms": 200,
    "log.retention.check.interval.ms": 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The session, the cluster, and what the tests do with both."""

    spark: Any
    cluster: Cluster
    client: BlockingClient
    numbers: Iterator[int]

    def new_topic(self, partitions: int = 3, **configs: Any) -> str:
        """A topic of its own for a test; underscores in config names stand for dots."""
        name = f"topic-{next(self.numbers)}"
        named = {config.replace("_", "."): value for config, value in configs.items()}
        self.cluster.create_topic(name, partitions, configs=FOREVER | named)
        return name

    def delete_topic(self, name: str) -> None:
        """Returns when the leader of partition 0 has heard of it, which serves it until then."""
        found = self.client.metadata([name])
        topic = found.topics[name]
        leader = str(found.nodes[topic.partitions[0].leader])
        self.cluster.delete_topic(name)
        with RawWire(leader) as wire:
            wait_for(lambda: wire.fetch(topic.topic_id)[0])

    def read(self, topic: str, schema: str | None = None, **options: Any) -> Any:
        """``options`` with double underscores for dots."""
        reader = self.spark.read.format("sparklog").option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return (reader.schema(schema) if schema else reader).load()

    def write(self, frame: Any, topic: str | None = None, **options: Any) -> None:
        writer = frame.write.format("sparklog").mode("append")
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        (writer.option("topic", topic) if topic else writer).save()

    @contextmanager
    def conf(self, name: str, value: str) -> Iterator[None]:
        """One of Spark's settings."""
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            self.spark.conf.unset(name)

    def last_execution(self) -> tuple[Any, Any]:
        """What Spark knows of queries, and of the last one."""
        self.spark._jsc.sc().listenerBus().waitUntilEmpty()  # it is told of them a moment later
        store = self.spark._jsparkSession.sharedState().statusStore()
        executions = store.executionsList()
        return store, executions.apply(executions.size() - 1)

    def fill(self, topic: str, records: int, value_bytes: int = 10, **options: Any) -> None:
        """Values ``0``, ``1`` ... padded with blanks, keyed by the same number."""
        frame = self.spark.range(0, records, 1, 1).selectExpr(
            "string(id) AS key", f"rpad(string(id), {value_bytes}, ' ') AS value"
        )
        self.write(frame, topic, **options)

    def consume(self, topic: str) -> list[ConsumedRecord]:
        """Every record, read without Spark, by partition and offset."""
        partitions = [TopicPartition(topic, n) for n in self.client.topic(topic).partitions]
        ends = self.client.list_offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))
        wanted = sum(end.offset for end in ends.values())
        found: list[ConsumedRecord] = []
        with self.client.consumer() as consumer:
            consumer.assign(partitions)
            while len(found) < wanted:
                found += consumer.poll(max_records=10_000)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def counted(self, counter: str, topic: str) -> int:
        """A counter of that topic, over all brokers: ``bytes_in``, ``bytes_out``."""
        return sum(status[counter].get(topic, 0) for status in statuses(self.cluster))


class SharedRig:
    """Makes the rig when it is asked for, and again after it was closed."""

    def __init__(self) -> None:
        self._rig: Rig | None = None
        self._folder = Path()

    def get(self) -> Rig:
        if self._rig is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sparklog-test-"))
            spark = _session()
            settings = SOON_TIERED | {"remote.dir": self._folder / "remote"}
            cluster = start(spark, brokers=3, data_dir=self._folder / "data", settings=settings)
            client = BlockingClient(cluster.bootstrap_servers)
            self._rig = Rig(spark=spark, cluster=cluster, client=client, numbers=count())
        return self._rig

    def close(self) -> None:
        rig, self._rig = self._rig, None
        if rig is not None:
            rig.client.close()
            rig.cluster.stop()
            rig.spark.stop()
            shutil.rmtree(self._folder)


def quick_session(master: str, app_name: str) -> Any:
    """A session with ``QUICK_JVM``, unless this process has a JVM of Spark already."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", QUICK_JVM)
    try:
        return create_session(master, app_name=app_name)
    finally:
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]


def _session() -> Any:
    spark = quick_session("local[5]", "DataFrame tests")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark
