"""Spark's own package for Kafka with Kafka, and ``format("sparklog")`` with sparklog, in turns.

Owns: the workloads and their figures.  Must not know how a server is started.  Both connectors work
with their defaults, in one Spark session, on the same records; sparklog's connector writes them to
both clusters.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from py4j.protocol import Py4JJavaError
from rich.console import Console

from benchmarks.kafka_nodes import Pair, Side, pair, spark_package
from benchmarks.librdkafka import create_topic, delete_topic
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from sparklog.cluster import connect
from sparklog.session import create_session

PARTITIONS = 6
VALUE_BYTES = 100
#: Two tasks run at a time.
MASTER = "local[2]"
#: The records have the timestamps of one day.
DAY_S = 86_400
DAY_START_S = 1_700_000_000
#: The default retention would delete records of that day.
FOREVER = {"retention.ms": "-1"}
TOPIC = "day"
#: ``reach`` and ``aim`` of the figures.
READ_ASKED = (3.0, 5.0)
HOUR_ASKED = (10.0, 50.0)
WRITE_ASKED = (5.0, 10.0)
#: Rows that a side writes just before its turn: Spark ends Python workers that were idle for a
#: minute, and Kafka's turn takes longer than that when its producer gives up.
AWAKE_ROWS = 1_000
#: The largest number of tries of a turn, and the message of Kafka's producer when it gives up.
ATTEMPTS = 3
EXPIRED = "TimeoutException: Expiring"
_VALUE = f"binary(repeat('v', {VALUE_BYTES})) AS value"
#: As many keys as a real topic has customers, devices or sessions.
_KEY = "string(id % 100000) AS key"
FORMATS = {"sparklog": "sparklog", "Kafka": "kafka"}
_numbers = count()


def reads(console: Console, scale: Scale) -> list[Measured]:
    """Return every figure of a read.  The console shows what is being measured."""
    with _spark_and_servers() as (spark, both):
        return list(_reads(spark, both, scale, console))


def writes(console: Console, scale: Scale) -> list[Measured]:
    """Return every figure of a write.  The console shows what is being measured."""
    with _spark_and_servers() as (spark, both):
        return list(_writes(spark, both, scale, console))


@contextmanager
def _spark_and_servers() -> Iterator[tuple[Any, Pair]]:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {spark_package()} pyspark-shell"
    spark = create_session(MASTER, app_name="sparklog beside Kafka")
    try:
        with pair(1) as both, connect(spark, both.ours.bootstrap):
            yield spark, both
    finally:
        spark.stop()


def _reads(spark: Any, both: Pair, scale: Scale, console: Console) -> Iterator[Measured]:
    for side in (both.ours, both.kafka):
        console.print(f"DataFrames: {scale.rows:,} rows into {side.name}")
        create_topic(side.bootstrap, TOPIC, PARTITIONS, 1, FOREVER)
        frame = _day(spark, scale.rows)
        _save(frame, "sparklog", side, TOPIC)
    newest = f"timestamp >= timestamp_seconds({DAY_START_S + DAY_S - 3600})"
    lengths = "sum(length(value))"
    for name, what, condition, column, asked in (
        ("count", "count", "true", "count(*)", READ_ASKED),
        ("sum", "sum over the lengths of values", "true", lengths, READ_ASKED),
        ("hour", "the same, newest hour of the day", newest, lengths, HOUR_ASKED),
    ):
        console.print(f"DataFrames: {what}")
        figure = _figure(f"read/{name}", f"Spark batch read, {what}", asked)

        def run(side: Side, condition: str = condition, column: str = column) -> tuple[float]:
            return _per_second(scale.rows, lambda: _query(spark, side, condition, column))

        # This warms up both sides.
        answers = {_query(spark, each, condition, column) for each in (both.ours, both.kafka)}
        assert len(answers) == 1, answers
        yield from take_turns(
            [figure], lambda: run(both.ours), lambda: run(both.kafka), scale.rounds, warm=False
        )


def _writes(spark: Any, both: Pair, scale: Scale, console: Console) -> Iterator[Measured]:
    for key, what, columns in (
        ("write", "Spark batch write, defaults of both", (_VALUE,)),
        ("write/keys", "Spark batch write with keys, defaults of both", (_KEY, _VALUE)),
    ):
        console.print(f"DataFrames: {what}, {scale.rows:,} rows")
        yield _write(spark, both, scale, console, _figure(key, what, WRITE_ASKED), columns)


def _write(
    spark: Any,
    both: Pair,
    scale: Scale,
    console: Console,
    figure: Figure,
    columns: tuple[str, ...],
) -> Measured:
    few, frame = [
        spark.range(0, rows, 1, 2).selectExpr(*columns) for rows in (AWAKE_ROWS, scale.rows)
    ]

    def once(side: Side) -> tuple[float]:
        topic = f"written-{next(_numbers)}"
        create_topic(side.bootstrap, topic, PARTITIONS, 1)
        _save(few, FORMATS[side.name], side, topic)
        taken = _per_second(scale.rows, lambda: _save(frame, FORMATS[side.name], side, topic))
        delete_topic(side.bootstrap, topic)
        return taken

    def run(side: Side) -> tuple[float]:
        return again_if_expired(lambda: once(side), lambda why: console.print(f"again: {why}"))

    [measured] = take_turns([figure], lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)
    return measured


def again_if_expired(turn: Callable[[], tuple[float]], say: Callable[[str], None]) -> tuple[float]:
    """Run a turn, and again if Kafka's producer gave up, at most ``ATTEMPTS`` times in all.

    Now and then the records of that producer for a new topic wait until they are too old, although
    the server is idle.  A turn of sparklog never ends like that.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return turn()
        except Py4JJavaError as error:
            found = [line for line in str(error.java_exception).splitlines() if EXPIRED in line]
            if not found:
                raise
            say(found[0])
    return turn()


def _figure(key: str, what: str, asked: tuple[float, float]) -> Figure:
    reach, aim = asked
    return Figure(
        key=f"dataframes/{key}", what=what, unit="M rows/s", reach=reach, aim=aim, digits=3
    )


def _day(spark: Any, rows: int) -> Any:
    """Records of one day, in the order of their timestamps."""
    at = f"timestamp_micros({DAY_START_S} * 1000000L + id * {DAY_S * 1_000_000 // rows}L)"
    return spark.range(0, rows, 1, 2).selectExpr(_VALUE, f"{at} AS timestamp")


def _save(frame: Any, connector: str, side: Side, topic: str) -> None:
    options = {"kafka.bootstrap.servers": side.bootstrap, "topic": topic}
    frame.write.format(connector).options(**options).mode("append").save()


def _query(spark: Any, side: Side, condition: str, column: str) -> int:
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}
    frame = spark.read.format(FORMATS[side.name]).options(**options).load()
    [[found]] = frame.where(condition).selectExpr(column).collect()
    return int(found)


def _per_second(rows: int, action: Callable[[], object]) -> tuple[float]:
    """Millions of rows per second."""
    began = time.perf_counter()
    action()
    return (rows / 1e6 / (time.perf_counter() - began),)
