"""The readers of the drill: librdkafka, Kafka's consumer for Java, and a DataFrame.

Owns: how each of them reads a whole topic.  Must not know what is in it, or what dies meanwhile.
"""

import subprocess
import time
import zlib
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.drill.measures import WEIGHTS, Measure, measure_of
from tests.support.kafka_jars import kafka_jars

SOURCE: Final = Path(__file__).with_name("TopicMeasure.java")
#: A reader that needs longer has a finding.
READ_SECONDS_MAX: Final = 1800.0
#: What a client goes on after.
PASSING: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
)


def with_librdkafka(bootstrap: str, topic: str, partitions: int) -> dict[int, Measure]:
    """Read from offset 0 to the end of each partition.  Raises AssertionError for a gap."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "drill",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
        "auto.offset.reset": "error",
        "topic.metadata.refresh.interval.ms": 1_000,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    checksums: dict[int, list[int]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"only {ended} came to their end"
        for message in consumer.consume(10_000, timeout=0.5):
            partition, value, error = message.partition(), message.value(), message.error()
            if error is not None and error.code() in PASSING:
                continue
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
                continue
            assert value is not None
            found = checksums[partition]
            expected = len(found)
            assert message.offset() == expected, f"offset {message.offset()}, not {expected}"
            found.append(zlib.crc32(value))
    consumer.close()
    return {number: measure_of(each) for number, each in checksums.items()}


def with_java(bootstrap: str, topic: str, partitions: int) -> dict[int, Measure]:
    """See ``TopicMeasure.java``.  Raises AssertionError, JarsUnavailableError."""
    command = ["java", "-Xmx512m", "-cp", f"{kafka_jars()}/*", str(SOURCE)]
    done = subprocess.run(
        [*command, bootstrap, topic, str(partitions), str(WEIGHTS)],
        capture_output=True,
        text=True,
        timeout=READ_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return {line[0]: Measure(*line[1:]) for line in lines}


def with_dataframe(spark: Any, bootstrap: str, topic: str) -> dict[int, Measure]:
    """A batch read of the whole topic; its sums are Spark's."""
    frame = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    rows = (
        frame.selectExpr(
            "partition",
            "crc32(value) AS checksum",
            f"crc32(value) * (offset % {WEIGHTS}) AS weighted",
        )
        .groupBy("partition")
        .agg({"partition": "count", "checksum": "sum", "weighted": "sum"})
        .collect()
    )
    return {
        row["partition"]: Measure(
            row["count(partition)"], row["sum(checksum)"], row["sum(weighted)"]
        )
        for row in rows
    }
