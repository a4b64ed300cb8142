"""SQL over topics: views that read and insert, tables, streams, and what is said of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.dataframe_rig import Rig

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

NO_TABLES = (
    "Spark hands the options of CREATE TABLE to no source that is made in Python: use "
    "CREATE TEMPORARY VIEW name USING sparklog OPTIONS (subscribe 'TOPIC', topic 'TOPIC')"
)


def refusal(act: Callable[[], Any]) -> str:
    """What Spark says of a statement that fails; never a traceback."""
    with pytest.raises(PySparkException) as caught:
        act()
    told = str(caught.value)
    assert "Traceback" not in told
    assert "UnboundLocalError" not in told
    return told


def drop(rig: Rig, *names: str) -> None:
    for name in names:
        rig.spark.sql(f"DROP VIEW IF EXISTS {name}")


def test_one_view_reads_and_inserts(rig: Rig) -> None:
    topic = rig.new_topic(1)
    sql = rig.spark.sql
    sql(
        f"CREATE TEMPORARY VIEW events USING sparklog OPTIONS (subscribe '{topic}', "
        f"topic '{topic}', startingOffsets 'earliest', kafka.acks 'all')"
    )
    try:
        assert sql("SELECT count(*) FROM events").collect() == [(0,)]
        sql("INSERT INTO events (key, value) VALUES (binary('k'), binary('v'))")
        sql("INSERT INTO events (key, value) VALUES (NULL, NULL)")
        sql("INSERT INTO events (value) SELECT binary(string(id)) FROM range(0, 3, 1, 1)")
        sql(
            "INSERT INTO events (value, timestamp) "
            "SELECT binary('at'), timestamp_millis(1700000000123)"
        )
        rows = sql("SELECT string(key), string(value), offset FROM events ORDER BY offset")
        assert rows.collect() == [
            ("k", "v", 0),
            (None, None, 1),
            (None, "0", 2),
            (None, "1", 3),
            (None, "2", 4),
            (None, "at", 5),
        ]
        assert rig.consume(topic)[-1].timestamp == 1_700_000_000_123
        # The rows of a read bring what only the log gives.
        told = refusal(lambda: sql("INSERT INTO events SELECT * FROM events"))
        assert "the column offset has values, and only the log gives them" in told
        assert "INSERT INTO view (key, value) SELECT" in told
        told = refusal(lambda: sql("INSERT OVERWRITE events (value) SELECT binary('x')"))
        assert "cannot" in told
        assert sql("SELECT count(*) FROM events").collect() == [(6,)]
    finally:
        drop(rig, "events")


def test_a_view_of_chosen_columns_reads_and_inserts(rig: Rig) -> None:
    topic = rig.new_topic(1)
    sql = rig.spark.sql
    sql(
        "CREATE TEMPORARY VIEW narrow (key BINARY, value BINARY) USING sparklog "
        f"OPTIONS (subscribe '{topic}', topic '{topic}')"
    )
    try:
        sql("INSERT INTO narrow SELECT binary('k'), binary(string(id)) FROM range(0, 4, 1, 1)")
        assert sql("SELECT count(*), count(key) FROM narrow").collect() == [(4, 4)]
        values = sql("SELECT string(value) FROM narrow ORDER BY value").collect()
        assert values == [("0",), ("1",), ("2",), ("3",)]
    finally:
        drop(rig, "narrow")


def test_a_view_for_one_use_says_what_the_other_needs(rig: Rig) -> None:
    topic = rig.new_topic(1)
    sql = rig.spark.sql
    sql(f"CREATE TEMPORARY VIEW reads USING sparklog OPTIONS (subscribe '{topic}')")
    sql(f"CREATE TEMPORARY VIEW writes (value STRING) USING sparklog OPTIONS (topic '{topic}')")
    try:
        told = refusal(lambda: sql("INSERT INTO reads (value) SELECT binary('x')"))
        assert "option 'subscribe' is for reads; a write names its topic with topic" in told
        sql("INSERT INTO writes SELECT 'x'")
        told = refusal(lambda: sql("SELECT * FROM writes").collect())
        assert "option 'topic' is for writes; a read names its topics with subscribe" in told
        assert [record.value for record in rig.consume(topic)] == [b"x"]
        told = refusal(
            lambda: sql(f"CREATE TEMPORARY VIEW no USING sparklog OPTIONS (topic '{topic}')")
        )
        assert "a view that reads and inserts has one of them and topic" in told
    finally:
        drop(rig, "reads", "writes")


def test_a_table_says_why_not(rig: Rig) -> None:
    topic = rig.new_topic(1)
    sql = rig.spark.sql
    options = f"USING sparklog OPTIONS (subscribe '{topic}', topic '{topic}')"
    told = refusal(lambda: sql(f"CREATE TABLE bare {options}"))
    assert f"CREATE TABLE is not supported: {NO_TABLES}" in told
    told = refusal(lambda: sql(f"CREATE TABLE filled {options} AS SELECT 'x' AS value"))
    assert (
        f"no topic: give option('topic', NAME) or a column topic; if this is a table: {NO_TABLES}"
        in told
    )
    sql(f"CREATE TABLE declared (value BINARY) {options}")  # Spark does not ask us
    try:
        told = refusal(lambda: sql("SELECT * FROM declared").collect())
        assert f"found none; if this is a table: {NO_TABLES}" in told
        told = refusal(lambda: sql("INSERT INTO declared SELECT binary('x')"))
        assert f"or a column topic; if this is a table: {NO_TABLES}" in told
        # Options of the statement do reach us.
        sql(f"INSERT INTO declared WITH (topic = '{topic}') SELECT binary('x')")
        rows = sql(f"SELECT string(value) FROM declared WITH (subscribe = '{topic}')").collect()
        assert rows == [("x",)]
    finally:
        sql("DROP TABLE declared")
    assert [record.value for record in rig.consume(topic)] == [b"x"]


def test_streams_say_that_they_are_not_there_yet(rig: Rig, tmp_path: Path) -> None:
    topic = rig.new_topic(1)
    stream = rig.spark.readStream.format("sparklog").option("subscribe", topic).load()

    def read() -> None:
        started = stream.writeStream.format("noop").option("checkpointLocation", tmp_path / "r")
        query = started.start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    told = refusal(read)
    assert "format('sparklog') has no streaming reads yet: read in batches" in told

    def write() -> None:
        rows = rig.spark.readStream.format("rate").load().selectExpr("string(value) AS value")
        sink = rows.writeStream.format("sparklog").option("topic", topic)
        query = sink.option("checkpointLocation", tmp_path / "w").start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    told = refusal(write)
    assert "format('sparklog') has no streaming writes yet: write each micro-batch with" in told
    assert rig.consume(topic) == []


def test_what_a_stream_is_told_to_use_instead_works(rig: Rig, tmp_path: Path) -> None:
    topic = rig.new_topic(1)
    folder = tmp_path / "in"
    rig.spark.range(5).selectExpr("string(id) AS value").coalesce(1).write.text(str(folder))
    rows = rig.spark.readStream.format("text").load(str(folder))
    query = (
        rows.writeStream.foreachBatch(lambda frame, _: rig.cluster.write(frame, topic))
        .option("checkpointLocation", tmp_path / "c")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert [record.value for record in rig.consume(topic)] == [b"0", b"1", b"2", b"3", b"4"]
    again = rig.cluster.read(topic, startingOffsets={topic: {0: 3}})
    assert sorted(row.value for row in again.collect()) == [b"3", b"4"]


def test_errors_of_options_and_plans_come_without_tracebacks(rig: Rig) -> None:
    topic = rig.new_topic(1)
    frame = rig.spark.sql("SELECT 'x' AS value")
    assert "did you mean subscribe?" in refusal(
        lambda: rig.spark.read.format("sparklog").option("subscribes", topic).load()
    )
    assert "does not exist" in refusal(lambda: rig.cluster.read("nowhere-at-all").count())
    assert "unknown column 'id'" in refusal(lambda: rig.cluster.write(rig.spark.range(1), topic))
    assert "use mode('append') or INSERT INTO" in refusal(
        lambda: frame.write.format("sparklog").mode("overwrite").option("topic", topic).save()
    )
    partitioned = rig.spark.sql("SELECT 'x' AS value, 7 AS partition")
    assert "1 partition (0 to 0)" in refusal(lambda: rig.cluster.write(partitioned, topic))
