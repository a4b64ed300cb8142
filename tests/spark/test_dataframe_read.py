"""Topics as DataFrames: every option, every column, and what is said when something is wrong."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.dataframe.options.options import parse_read_options
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.errors import DataLossError
from sparklog.types import TopicPartition
from tests.spark.dataframe_rig import QUICK_JVM, Rig, SharedRig

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True


@pytest.fixture(scope="module")
def hundred(shared_rig: SharedRig) -> str:
    """Topic of three partitions: partition p has offsets 0 to 99, at times 1000 * offset + p ms."""
    rig = shared_rig.get()
    topic = rig.new_topic()
    with rig.client.producer() as producer:
        for number in range(300):
            partition, offset = number % 3, number // 3
            producer.send(
                topic,
                f"v{offset}".encode(),
                partition=partition,
                timestamp=1000 * offset + partition,
            )
    return topic


def offsets(frame: Any) -> dict[int, list[int]]:
    """Offsets by partition."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(numbers) for partition, numbers in sorted(found.items())}


def span(start: int, stop: int) -> list[int]:
    return list(range(start, stop))


def said(error: BaseException) -> str:
    return " ".join(str(error).split())


# columns


def test_every_column_of_records_with_and_without_everything(rig: Rig) -> None:
    topic = rig.new_topic(partitions=2)
    with rig.client.producer() as producer:
        producer.send(topic, b"\x00\xff", b"k", partition=0, timestamp=1_700_000_000_123)
        producer.send(topic, None, None, partition=0, timestamp=0)
        producer.send(
            topic, b"", b"", partition=1, timestamp=-1500, headers=[("h", b"1"), ("h", None)]
        )
    columns = "key, value, topic, partition, offset, timestamp, timestampType, headers"
    found = rig.read(topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert ", ".join(found[0].__fields__) == columns
    moment = datetime.fromtimestamp
    assert [row[:5] for row in found] == [
        (b"k", b"\x00\xff", topic, 0, 0),
        (None, None, topic, 0, 1),
        (b"", b"", topic, 1, 0),
    ]
    assert [row.timestamp for row in found] == [
        moment(1_700_000_000.123), moment(0), moment(-1.5)
    ]  # fmt: skip
    assert [row.timestampType for row in found] == [0, 0, 0]
    # As in Spark's Kafka source, no headers are null.
    assert [row.headers for row in found] == [None, None, [("h", b"1"), ("h", None)]]


def test_the_schema_is_that_of_sparks_kafka_source(rig: Rig, hundred: str) -> None:
    assert rig.read(hundred).schema == read_schema(include_headers=False)
    assert rig.read(hundred, includeHeaders="TRUE").schema == read_schema(include_headers=True)


def test_append_time_is_told_by_the_timestamp_type(rig: Rig) -> None:
    topic = rig.new_topic(1, message_timestamp_type="LogAppendTime")
    before = datetime.now(UTC).timestamp()
    rig.fill(topic, 3)
    rows = rig.read(topic).collect()
    assert [row.timestampType for row in rows] == [1, 1, 1]
    assert all(before - 1 <= row.timestamp.timestamp() <= before + 60 for row in rows)


def test_a_user_schema_projects(rig: Rig, hundred: str) -> None:
    frame = rig.read(hundred, schema="offset bigint, value binary")
    assert frame.where("offset = 7").collect() == [(7, b"v7")] * 3
    assert rig.read(hundred, schema="topic string").distinct().collect() == [(hundred,)]
    assert (
        rig.read(hundred, schema="headers array<struct<key: string, value: binary>>").count() == 300
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_other_clients_in_every_codec(rig: Rig, codec: str) -> None:
    topic = rig.new_topic(1)
    producer = Producer(
        {
            "bootstrap.servers": rig.cluster.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 50,
        }
    )
    for number in range(500):
        producer.produce(topic, value=f"value {number}", key=str(number))
    assert producer.flush(30) == 0
    found = rig.read(topic).orderBy("offset").collect()
    assert [(row.key, row.value) for row in found] == [
        (str(number).encode(), f"value {number}".encode()) for number in range(500)
    ]


# what is read


def test_several_topics(rig: Rig, hundred: str) -> None:
    other = rig.new_topic(1)
    rig.fill(other, 5)
    counts = rig.read(f"{hundred}, {other}").groupBy("topic").count().collect()
    assert sorted(map(tuple, counts)) == sorted([(hundred, 300), (other, 5)])


def test_assigned_partitions(rig: Rig, hundred: str) -> None:
    reader = rig.spark.read.format("sparklog").option("assign", f'{{"{hundred}": [2, 0]}}')
    assert offsets(reader.load()) == {0: span(0, 100), 2: span(0, 100)}


def test_starting_and_ending_offsets(rig: Rig, hundred: str) -> None:
    frame = rig.read(
        hundred,
        startingOffsets=f'{{"{hundred}": {{"0": 10, "1": -2, "2": 100}}}}',
        endingOffsets=f'{{"{hundred}": {{"0": 20, "1": 1, "2": -1}}}}',
    )
    assert offsets(frame) == {0: span(10, 20), 1: [0]}
    assert rig.read(hundred, startingOffsets="earliest", endingOffsets="latest").count() == 300


def test_starting_and_ending_timestamps(rig: Rig, hundred: str) -> None:
    """Partition p has offset n at 1000 * n + p, so 5001 is found at 6, 5 and 5."""
    frame = rig.read(hundred, startingTimestamp="5001", endingTimestamp="7001")
    assert offsets(frame) == {0: [6, 7], 1: [5, 6], 2: [5, 6]}
    assert offsets(rig.read(hundred, startingTimestamp="98500", endingTimestamp="99999999")) == {
        0: [99],
        1: [99],
        2: [99],
    }


def test_timestamps_by_partition_and_partitions_without_a_match(rig: Rig, hundred: str) -> None:
    times = f'{{"{hundred}": {{"0": 98000, "1": 99001, "2": 99999}}}}'
    ends = f'{{"{hundred}": {{"0": 98001, "1": 99999, "2": 99999}}}}'
    starting = {"startingOffsetsByTimestamp": times, "startingOffsets": "earliest"}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(rig.read(hundred, **starting, **latest)) == {0: [98, 99], 1: [99]}
    found = rig.read(hundred, endingOffsetsByTimestamp=ends, **starting, **latest)
    assert offsets(found) == {0: [98], 1: [99]}


def test_topics_by_pattern_also_later_ones_and_none(rig: Rig) -> None:
    reader = rig.spark.read.format("sparklog").option(
        "subscribePattern", r"^pattern\.(a|\p{Digit}+)$"
    )
    frame = reader.load()
    assert frame.count() == 0
    for name in ("pattern.a", "pattern.12", "pattern.b", "pattern.a2"):
        rig.cluster.create_topic(name, 1)
        rig.fill(name, 2)
    counts = frame.groupBy("topic").count().collect()
    assert sorted(map(tuple, counts)) == [("pattern.12", 2), ("pattern.a", 2)]


def test_tasks_of_at_most_so_many_records(rig: Rig, hundred: str) -> None:
    frame = rig.read(hundred, maxRecordsPerPartition=40)
    assert frame.rdd.getNumPartitions() == 9
    assert frame.count() == 300


def test_min_partitions_splits_without_fetching_much_twice(rig: Rig) -> None:
    topic = rig.new_topic(2)
    rig.fill(topic, 100_000, value_bytes=100, kafka__batch__size=32 * 1024)
    written, before = rig.counted("bytes_in", topic), rig.counted("bytes_out", topic)
    frame = rig.read(topic, minPartitions=8)
    assert frame.rdd.getNumPartitions() >= 8
    assert frame.selectExpr("count(*)", "count(DISTINCT partition, offset)").collect() == [
        (100_000, 100_000)
    ]
    assert rig.counted("bytes_out", topic) - before < 2 * written


def test_a_view_read_twice_in_one_query(rig: Rig, hundred: str) -> None:
    rig.read(hundred).createOrReplaceTempView("hundred")
    joined = rig.spark.sql(
        "SELECT count(*), sum(a.offset) FROM hundred a "
        "JOIN hundred b ON a.partition = b.partition AND a.offset = b.offset + 1"
    )
    assert joined.collect() == [(297, 3 * sum(range(1, 100)))]
    early, late = "timestamp < timestamp_millis(3000)", "timestamp >= timestamp_millis(95000)"
    counts = [f"SELECT count(*) AS n FROM hundred WHERE {where}" for where in (early, late, "true")]
    union = rig.spark.sql(" UNION ALL ".join(counts))
    assert sorted(row.n for row in union.collect()) == [9, 15, 300]


def test_a_frame_reads_what_is_there_when_it_runs(rig: Rig) -> None:
    topic = rig.new_topic(1)
    frame = rig.read(topic)
    rig.fill(topic, 3)
    first = frame.count()
    rig.fill(topic, 4)
    assert (first, frame.count()) == (3, 7)


def test_an_empty_topic_and_an_empty_result(rig: Rig, hundred: str) -> None:
    empty = rig.read(rig.new_topic())
    assert (empty.collect(), empty.count(), len(empty.columns)) == ([], 0, 7)
    frame = rig.read(hundred)
    assert frame.where("timestamp > '2030-01-01'").collect() == []
    assert frame.where("offset > 1000").collect() == []
    at_the_end = f'{{"{hundred}": {{"0": 100, "1": 100, "2": 100}}}}'
    assert rig.read(hundred, startingOffsets=at_the_end).collect() == []


def test_a_limit_ends_the_read_early(rig: Rig, hundred: str) -> None:
    assert len(rig.read(hundred).limit(5).collect()) == 5


def test_small_fetches_and_records_larger_than_a_fetch(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 200, value_bytes=5000, kafka__batch__size=20_000)
    frame = rig.read(topic, kafka__max__partition__fetch__bytes=1000)
    assert frame.selectExpr("count(*)", "min(length(value))").collect() == [(200, 5000)]


def test_large_variable_types_of_sparks_arrow(rig: Rig, hundred: str) -> None:
    rig.spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert rig.read(hundred).where("value = binary('v3')").count() == 3
        topic = rig.new_topic()
        frame = rig.spark.range(10).selectExpr("string(id) AS key", "string(id) AS value")
        rig.write(frame.selectExpr("*", f"'{topic}' AS topic"))
        assert rig.read(topic).count() == 10
    finally:
        rig.spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscribe": None},
            "exactly one of the options assign, subscribe and subscribePattern is",
        ),
        ({"assign": '{"t": [0]}'}, "found assign and subscribe"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "a batch read cannot have latest starting offsets"),
        ({"endingOffsets": "earliest"}, "a batch read cannot have earliest ending offsets"),
        ({"startingOffsets": "{"}, "not JSON"),
        ({"startingTimestamp": "yesterday"}, "expected milliseconds since 1970-01-01 UTC"),
        ({"minPartitions": "-1"}, "option minPartitions='-1': expected a positive whole number"),
        ({"includeHeaders": "yes"}, "option includeHeaders='yes': expected true or false"),
        ({"kafka.group.ids": "g"}, "did you mean kafka.group.id?"),
        ({"kafka.value.deserializer": "x"}, "values are read as binary; cast the column"),
        ({"path": "t"}, "topics are no files; name them with subscribe or assign"),
        ({"kafka.bootstrap.servers": "here"}, "'here' is not HOST:PORT"),
    ],
)
def test_wrong_options_are_told_at_load(
    rig: Rig, options: dict[str, str | None], message: str
) -> None:
    reader = rig.spark.read.format("sparklog")
    for name, value in ({"subscribe": "t"} | options).items():
        reader = reader if value is None else reader.option(name, value)
    with pytest.raises(PySparkException) as caught:
        reader.load()
    assert message in said(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"subscribe": "not/legal"}, "'not/legal' is not a legal topic name"),
        ({"assign": '{"TOPIC": [0, 3]}'}, "assign names TOPIC-3, but topic TOPIC has 3 partitions"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 0, "1": 0, "2": 101}}'},
            "startingOffsets: offset 101 of TOPIC-2 is out of range; the partition holds [0, 100)",
        ),
        (
            {"endingOffsets": '{"TOPIC": {"0": 0, "1": 101, "2": 1}}'},
            "endingOffsets: offset 101 of TOPIC-1 is out of range; the partition holds [0, 100)",
        ),
        (
            {"startingOffsets": '{"TOPIC": {"0": 0}}'},
            "startingOffsets gives nothing for TOPIC-1; it must name every partition",
        ),
        (
            {"endingOffsets": '{"TOPIC": {"0": 1, "1": 1, "2": 1, "3": 1}}'},
            "endingOffsets names TOPIC-3, which this read does not select",
        ),
        (
            {
                "startingOffsets": '{"TOPIC": {"0": 1, "1": 1, "2": 9}}',
                "endingOffsets": '{"TOPIC": {"0": 1, "1": 1, "2": 8}}',
            },
            "TOPIC-2 would be read from offset 9 to 8: startingOffsets lies behind endingOffsets",
        ),
        (
            {"startingOffsetsByTimestamp": '{"TOPIC": {"0": 1, "1": 1}}'},
            "startingOffsetsByTimestamp gives nothing for TOPIC-2; it must name every partition",
        ),
        (
            {"startingTimestamp": "1700000000000"},
            "startingTimestamp 1700000000000: no record of TOPIC-0 is that new",
        ),
    ],
)
def test_what_the_topic_does_not_have_is_told(
    rig: Rig, hundred: str, options: dict[str, str], message: str
) -> None:
    reader = rig.spark.read.format("sparklog")
    chosen = {} if "assign" in options else {"subscribe": hundred}
    for name, value in (chosen | options).items():
        reader = reader.option(name, value.replace("TOPIC", hundred))
    with pytest.raises(PySparkException) as caught:
        reader.load().count()
    assert message.replace("TOPIC", hundred) in said(caught.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("value binary, offsets bigint", "unknown column 'offsets' in the schema (did you mean"),
        ("value string", "column value is binary, not string; cast it after the read"),
        ("value binary NOT NULL", "column value may hold nulls: leave NOT NULL out"),
    ],
)
def test_a_wrong_user_schema_is_told(rig: Rig, hundred: str, schema: str, message: str) -> None:
    with pytest.raises(PySparkException) as caught:
        rig.read(hundred, schema=schema).count()
    assert message in said(caught.value)


def test_a_cluster_that_cannot_be_reached_is_told(rig: Rig) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafkaConsumer.pollTimeoutMs": "300"}
    reader = rig.spark.read.format("sparklog").options(subscribe="t", **options)
    with pytest.raises(PySparkException, match="no node of the cluster can be reached"):
        reader.load().count()


def test_records_that_were_deleted_after_the_plan_are_told(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 10)
    reader = _reader(rig, topic)
    (planned,) = reader.partitions()
    rig.client.admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLossError) as caught:
        list(reader.read(planned))
    lost = f"{topic}-0 no longer has offsets 0 to 4 of the planned range [0, 10): the log starts at"
    assert lost in str(caught.value)
    assert rig.read(topic).count() == 6


def test_a_read_may_go_on_without_deleted_records(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 10)
    from_zero = {"startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    reader = _reader(rig, topic, failOnDataLoss="false")
    (planned,) = reader.partitions()
    rig.client.admin.delete_records({TopicPartition(topic, 0): 4})
    assert sum(batch.num_rows for batch in reader.read(planned)) == 6
    with pytest.raises(PySparkException) as caught:
        rig.read(topic, **from_zero).count()
    assert f"startingOffsets: offset 0 of {topic}-0 is out of range" in said(caught.value)
    assert rig.read(topic, failOnDataLoss="false", **from_zero).count() == 6


def test_a_topic_that_lost_records_after_the_plan_is_told(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 10)
    reader = _reader(rig, topic)
    (planned,) = reader.partitions()
    rig.delete_topic(topic)
    rig.cluster.create_topic(topic, 1)
    with pytest.raises(DataLossError, match=f"{topic}-0 .* the topic was deleted and created"):
        list(reader.read(planned))
    rig.fill(topic, 20)
    reader = _reader(rig, topic, failOnDataLoss="false")
    assert list(reader.read(planned)) == []


def test_a_topic_that_was_deleted_after_the_plan_is_told(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 10)
    reader = _reader(rig, topic)
    (planned,) = reader.partitions()
    rig.delete_topic(topic)
    with pytest.raises(DataLossError, match=f"{topic}-0 no longer .*: the topic was deleted"):
        list(reader.read(planned))
    assert list(_reader(rig, topic, failOnDataLoss="false").read(planned)) == []


def test_a_read_without_partitions_yields_nothing(rig: Rig, hundred: str) -> None:
    """Spark makes up a partition with the value None where none was planned."""
    assert list(_reader(rig, hundred).read(InputPartition(None))) == []


def _reader(rig: Rig, topic: str, **more: str) -> TopicReader:
    options = {"kafka.bootstrap.servers": rig.cluster.bootstrap_servers, "subscribe": topic} | more
    schema: StructType = read_schema(include_headers=False)
    return TopicReader(parse_read_options(options, None), schema)


# other sessions

OTHER_SESSION = """
import sys
from sparklog.session import create_session
spark = create_session("local[1]")
spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
reader = spark.read.format("sparklog").option("subscribe", sys.argv[1])
try:
    reader.load()
except Exception as error:
    print("no cluster: start one with sparklog.start(spark)" in str(error))
frame = reader.option("kafka.bootstrap.servers", sys.argv[2]).load()
frame = frame.where("timestamp BETWEEN timestamp_millis(1) AND timestamp_millis(2)")
print(frame.count())
spark.stop()
"""


def test_another_session_names_the_cluster_by_an_option(rig: Rig, hundred: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_SESSION, hundred, rig.cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": QUICK_JVM},
    )
    assert done.stdout.split() == ["True", "2"], done.stderr
