"""Spark's own Kafka package against Kafka, and ``format("sparklog")`` against us, in turns.

Owns: the workloads and their rows.  Must not know how a server is started.  Both connectors work
with their defaults, in one Spark session, on the same records: ours writes them to both clusters.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness import Row, in_turns
from benchmarks.kafka_nodes import Pair, Side, pair, spark_package
from benchmarks.librdkafka import create_topic, delete_topic
from benchmarks.scale import Scale
from sparklog.cluster import connect
from sparklog.session import create_session

PARTITIONS = 6
VALUE_BYTES = 100
#: Tasks at a time.
MASTER = "local[2]"
#: The records are those of one day.
DAY_S = 86_400
DAY_START_S = 1_700_000_000
#: Retention would take records of that day.
FOREVER = {"retention.ms": "-1"}
TOPIC = "day"
_VALUE = f"binary(repeat('v', {VALUE_BYTES})) AS value"
FORMATS = {"sparklog": "sparklog", "Kafka": "kafka"}
_numbers = count()


def rows(console: Console, scale: Scale) -> list[Row]:
    """Every row; says on the console what is being measured."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {spark_package()} pyspark-shell"
    spark = create_session(MASTER, app_name="sparklog beside Kafka")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
            pair(Path(name), 1) as both,
            connect(spark, both.ours.bootstrap),
        ):
            return [*_reads(spark, both, scale, console), _write(spark, both, scale, console)]
    finally:
        spark.stop()


def _reads(spark: Any, both: Pair, scale: Scale, console: Console) -> Iterator[Row]:
    for side in (both.ours, both.kafka):
        console.print(f"DataFrames: {scale.rows:,} rows into {side.name}")
        create_topic(side.bootstrap, TOPIC, PARTITIONS, 1, FOREVER)
        frame = _day(spark, scale.rows)
        _save(frame, "sparklog", side, TOPIC)
    newest = f"timestamp >= timestamp_seconds({DAY_START_S + DAY_S - 3600})"
    lengths = "sum(length(value))"
    for what, condition, figure, asked in (
        ("count", "true", "count(*)", 3.0),
        ("sum over the lengths of values", "true", lengths, 3.0),
        ("the same, newest hour of the day", newest, lengths, 10.0),
    ):
        console.print(f"DataFrames: {what}")

        def run(side: Side, condition: str = condition, figure: str = figure) -> float:
            return _per_second(scale.rows, lambda: _query(spark, side, condition, figure))

        answers = {_query(spark, each, condition, figure) for each in (both.ours, both.kafka)}
        assert len(answers) == 1, answers
        ours, kafka = in_turns(lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)
        yield Row(
            what=f"Spark batch read, {what}",
            unit="M rows/s",
            ours=ours,
            base=kafka,
            asked=asked,
            digits=3,
        )


def _write(spark: Any, both: Pair, scale: Scale, console: Console) -> Row:
    console.print(f"DataFrames: writing {scale.rows:,} rows")
    frame = spark.range(0, scale.rows, 1, 2).selectExpr(_VALUE)

    def run(side: Side) -> float:
        topic = f"written-{next(_numbers)}"
        create_topic(side.bootstrap, topic, PARTITIONS, 1)
        try:
            return _per_second(scale.rows, lambda: _save(frame, FORMATS[side.name], side, topic))
        finally:
            delete_topic(side.bootstrap, topic)

    ours, kafka = in_turns(lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)
    return Row(
        what="Spark batch write", unit="M rows/s", ours=ours, base=kafka, asked=5.0, digits=3
    )


def _day(spark: Any, rows: int) -> Any:
    """Records of one day, in the order of time."""
    at = f"timestamp_micros({DAY_START_S} * 1000000L + id * {DAY_S * 1_000_000 // rows}L)"
    return spark.range(0, rows, 1, 2).selectExpr(_VALUE, f"{at} AS timestamp")


def _save(frame: Any, connector: str, side: Side, topic: str) -> None:
    options = {"kafka.bootstrap.servers": side.bootstrap, "topic": topic}
    frame.write.format(connector).options(**options).mode("append").save()


def _query(spark: Any, side: Side, condition: str, figure: str) -> int:
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}
    frame = spark.read.format(FORMATS[side.name]).options(**options).load()
    [[found]] = frame.where(condition).selectExpr(figure).collect()
    return int(found)


def _per_second(rows: int, action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return rows / 1e6 / (time.perf_counter() - began)
