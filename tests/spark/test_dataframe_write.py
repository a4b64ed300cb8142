"""DataFrames into topics: what arrives, where, and what is said when something is wrong."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from sparklog.client.blocking import BlockingClient
from sparklog.client.consumer import ConsumedRecord
from sparklog.client.partitioner import partition_of_key
from sparklog.cluster import start_processes
from sparklog.session_setup import set_up_session
from sparklog.types import Compression, TopicPartition
from sparklog.wire.records.batch import iter_batches
from tests.spark.dataframe_rig import Rig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

HEADERS = "array<struct<key: string, value: binary>>"


def said(error: BaseException) -> str:
    return " ".join(str(error).split())


def values(records: list[ConsumedRecord]) -> list[bytes | None]:
    return [record.value for record in records]


# what arrives


def test_every_column(rig: Rig) -> None:
    topic = rig.new_topic(2)
    moment = datetime(2024, 5, 17, 12, 30, 0, 123_999, tzinfo=UTC)
    schema = f"key string, value string, partition int, timestamp timestamp, headers {HEADERS}"
    rows = [
        ("k", "v", 1, moment, [("h", b"1"), ("h", None)]),
        (None, None, 0, moment, None),
        ("", "", 1, moment, []),
    ]
    frame = rig.spark.createDataFrame(rows, schema).coalesce(1)
    before = time.time_ns() // 1_000_000
    rig.write(frame, topic)
    late = rig.spark.createDataFrame([("late", None)], "value string, timestamp timestamp")
    rig.write(late.selectExpr("*", "0 AS partition"), topic)
    found = rig.consume(topic)
    assert [(r.partition, r.offset, r.key, r.value, r.headers) for r in found] == [
        (0, 0, None, None, ()),
        (0, 1, None, b"late", ()),
        (1, 0, b"k", b"v", (("h", b"1"), ("h", None))),
        (1, 1, b"", b"", ()),
    ]
    at = int(moment.timestamp() * 1000)
    assert [r.timestamp for r in found if r.value != b"late"] == [at, at, at]
    assert before <= found[1].timestamp <= before + 60_000


def test_binary_columns_as_they_are(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rows = [(bytearray(b"\x00\xff"), bytearray(range(256))), (None, bytearray())]
    rig.write(rig.spark.createDataFrame(rows, "key binary, value binary").coalesce(1), topic)
    assert [(record.key, record.value) for record in rig.consume(topic)] == [
        (b"\x00\xff", bytes(range(256))),
        (None, b""),
    ]


def test_keys_choose_partitions_as_javas_partitioner_does(rig: Rig) -> None:
    topic = rig.new_topic(5)
    rig.fill(topic, 1000)
    found = rig.consume(topic)
    assert sorted(int(record.key or b"") for record in found) == list(range(1000))
    assert all(record.partition == partition_of_key(record.key or b"", 5) for record in found)


def test_the_topic_comes_from_the_option_or_else_from_the_column(rig: Rig) -> None:
    one, two = rig.new_topic(1), rig.new_topic(1)
    rows = [(one, "a"), (two, "b"), (one, "c")]
    frame = rig.spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    rig.write(frame)
    rig.write(frame, two)
    assert values(rig.consume(one)) == [b"a", b"c"]
    assert values(rig.consume(two)) == [b"b", b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(rig: Rig, codec: str) -> None:
    topic = rig.new_topic(1)
    rig.fill(topic, 2000, value_bytes=50, kafka__compression__type=codec)
    fetched = rig.client.fetch(TopicPartition(topic, 0), 0)
    used = {header.compression for header, _ in iter_batches(fetched.records)}
    assert used == {Compression[codec.upper()]}
    assert [value.strip() for value in values(rig.consume(topic)) if value] == [
        str(number).encode() for number in range(2000)
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(rig: Rig, acks: str) -> None:
    topic = rig.new_topic(2)
    rig.fill(topic, 500, kafka__acks=acks)
    if acks == "0":  # nobody has waited until they were there
        wait_for(lambda: len(rig.consume(topic)) == 500)
    assert len(rig.consume(topic)) == 500


def test_many_tasks_and_batches_lose_and_double_nothing(rig: Rig) -> None:
    topic = rig.new_topic(6)
    frame = rig.spark.range(0, 200_000, 1, 7).selectExpr("rpad(string(id), 60, '.') AS value")
    rig.write(frame, topic, kafka__batch__size=50_000)
    read = rig.read(topic)
    assert read.selectExpr("count(*)", "count(DISTINCT value)").collect() == [(200_000, 200_000)]
    spread = [row["count"] for row in read.groupBy("partition").count().collect()]
    assert len(spread) == 6
    assert min(spread) > 10_000


def test_threads_write_as_the_main_one_does(rig: Rig) -> None:
    """Spark finds a writer made in Python only by the session that is active in the thread."""
    topics = [rig.new_topic(1) for _ in range(3)]
    frame = rig.spark.range(2).selectExpr("string(id) AS value").coalesce(1)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda topic: rig.write(frame, topic), topics))
    assert [values(rig.consume(topic)) for topic in topics] == [[b"0", b"1"]] * 3


def test_the_cluster_writes_also_in_a_thread_without_a_session(rig: Rig) -> None:
    topic = rig.new_topic(1)
    frame = rig.spark.range(2).selectExpr("string(id) AS value").coalesce(1)

    def write() -> None:
        rig.spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
        rig.cluster.write(frame, topic)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()
    assert values(rig.consume(topic)) == [b"0", b"1"]


def test_who_connects_can_write_though_the_thread_has_lost_its_session(rig: Rig) -> None:
    """As a connection of the thread to the JVM is lost, for instance by a fork of the process."""
    topic = rig.new_topic(1)
    frame = rig.spark.range(2).selectExpr("string(id) AS value").coalesce(1)

    def write() -> None:
        rig.spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
        set_up_session(rig.spark, rig.cluster.bootstrap_servers)
        rig.write(frame, topic)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()
    assert values(rig.consume(topic)) == [b"0", b"1"]


def test_a_missing_topic_is_created(rig: Rig) -> None:
    rig.write(rig.spark.range(3).selectExpr("string(id) AS value"), "made-by-a-write")
    assert sorted(v for v in values(rig.consume("made-by-a-write")) if v) == [b"0", b"1", b"2"]


def test_an_empty_frame_writes_nothing(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rig.write(rig.spark.range(0).selectExpr("string(id) AS value"), topic)
    assert rig.consume(topic) == []


def test_a_topic_can_be_copied_with_its_times_and_headers(rig: Rig) -> None:
    source, target = rig.new_topic(2), rig.new_topic(2)
    with rig.client.producer() as producer:
        for number in range(100):
            producer.send(
                source,
                None if number % 7 == 0 else str(number).encode(),
                str(number).encode(),
                partition=number % 2,
                timestamp=number,
                headers=[("n", bytes([number]))],
            )
    frame = rig.read(source, includeHeaders="true")
    rig.write(frame.select("key", "value", "partition", "timestamp", "headers"), target)

    def content(topic: str) -> list[Any]:
        found = rig.consume(topic)
        return sorted((r.partition, r.key, r.value, r.timestamp, r.headers) for r in found)

    assert content(target) == content(source)


def test_large_records_where_the_topic_allows_them(rig: Rig) -> None:
    topic = rig.new_topic(1, max_message_bytes=4_000_000)
    frame = rig.spark.range(2).selectExpr("repeat(string(id), 2000000) AS value")
    rig.write(frame, topic)
    assert sorted(len(value or b"") for value in values(rig.consume(topic))) == [2_000_000] * 2


# errors


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id"], {"topic": "t"}, "unknown column 'id'"),
        (["string(id) AS key"], {"topic": "t"}, "the column value is missing"),
        (["id AS value"], {"topic": "t"}, "column value must be string or binary, not bigint"),
        (["string(id) AS value"], {}, "no topic: give option('topic', NAME) or a column topic"),
        (["string(id) AS value", "id AS partition"], {"topic": "t"}, "must be int, not bigint"),
        (
            ["string(id) AS value", "array(string(id)) AS headers"],
            {"topic": "t"},
            "column headers must be array<struct<key:string,value:binary>>, not array<string>",
        ),
        (
            ["string(id) AS value", "timestamp_ntz'2024-01-01 00:00:00' AS timestamp"],
            {"topic": "t"},
            "column timestamp must be timestamp, not timestamp_ntz: cast it",
        ),
        (["string(id) AS value"], {"topics": "t"}, "unknown option 'topics'"),
        (["string(id) AS value"], {"topic": "t", "kafka.acks": "2"}, "expected all, 1 or 0"),
        (
            ["string(id) AS value"],
            {"topic": "t", "kafka.compression.type": "brotli"},
            "expected one of none, gzip, snappy, lz4, zstd",
        ),
        (["string(id) AS value"], {"topic": "t", "path": "p"}, "topics are no files"),
    ],
)
def test_wrong_columns_and_options_are_told_before_anything_is_written(
    rig: Rig, columns: list[str], options: dict[str, str], message: str
) -> None:
    writer = rig.spark.range(3).selectExpr(*columns).write.format("sparklog").mode("append")
    with pytest.raises(PySparkException) as caught:
        writer.options(**options).save()
    assert message in said(caught.value)
    assert "t" not in rig.cluster.topics()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("overwrite", "a topic cannot be overwritten: use mode('append')"),
        ("error", 'Please use either the "Append" or'),
    ],
)
def test_topics_are_only_appended_to(rig: Rig, mode: str, message: str) -> None:
    writer = rig.spark.range(3).selectExpr("string(id) AS value").write.format("sparklog")
    with pytest.raises(PySparkException) as caught:
        writer.mode(mode).option("topic", "t").save()
    assert message in said(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ["string(id) AS value", "if(id = 1, null, 'TOPIC') AS topic"],
            "a row has a null topic: fill the column topic, or give option('topic')",
        ),
        (
            ["string(id) AS value", "'TOPIC' AS topic", "int(id) AS partition"],
            "the column partition has 2, but topic TOPIC has 2 partitions (0 to 1)",
        ),
        (
            ["string(id) AS value", "'TOPIC' AS topic", "-1 AS partition"],
            "the column partition has -1, but topic TOPIC has 2 partitions (0 to 1)",
        ),
        (["string(id) AS value", "'a/b' AS topic"], "'a/b' is not a legal topic name"),
        (
            ["repeat('v', 2000000) AS value", "'TOPIC' AS topic", "0 AS partition"],
            "a record (2000074 bytes) for TOPIC-0 exceeds the topic's max.message.bytes: raise",
        ),
        (
            ["string(id) AS value", "'TOPIC' AS topic", "array(struct(null, null)) AS headers"],
            "a record header and its key may not be null",
        ),
    ],
)
def test_rows_that_no_topic_takes_are_told(rig: Rig, columns: list[str], message: str) -> None:
    topic = rig.new_topic(2)
    named = [column.replace("TOPIC", topic) for column in columns]
    if named[-1].endswith("headers"):
        named[-1] = f"cast({named[-1].removesuffix(' AS headers')} AS {HEADERS}) AS headers"
    with pytest.raises(PySparkException) as caught:
        rig.write(rig.spark.range(0, 3, 1, 1).selectExpr(*named))
    assert message.replace("TOPIC", topic) in said(caught.value)
    assert rig.consume(topic) == []


def test_batches_are_as_small_as_the_topic_wants_them(rig: Rig) -> None:
    topic = rig.new_topic(1, max_message_bytes=1000)
    rig.fill(topic, 100, value_bytes=100)
    assert len(rig.consume(topic)) == 100
    frame = rig.spark.range(0, 200, 1, 1).selectExpr(
        "rpad('v', if(id = 150, 1000, 1), ' ') AS value"
    )
    with pytest.raises(PySparkException) as caught:
        rig.write(frame, topic)
    assert f"bytes) for {topic}-0 exceeds the topic's max.message.bytes: raise that" in said(
        caught.value
    )
    assert len(rig.consume(topic)) == 100


def test_keys_can_choose_partitions_as_librdkafka_does(rig: Rig) -> None:
    ours, theirs = rig.new_topic(5), rig.new_topic(5)
    rig.fill(ours, 200, partitioner="consistent_random")
    servers = {"bootstrap.servers": rig.cluster.bootstrap_servers}
    producer = Producer(servers | {"partitioner": "consistent_random"})
    for number in range(200):
        producer.produce(theirs, key=str(number))
    assert producer.flush(30) == 0
    found = [{r.key: r.partition for r in rig.consume(topic)} for topic in (ours, theirs)]
    assert len(found[0]) == 200
    assert found[0] == found[1]


def test_a_row_that_is_refused_keeps_its_whole_group_back(rig: Rig) -> None:
    """Also those of other topics."""
    topic = rig.new_topic(1)
    frame = rig.spark.range(0, 9, 1, 1).selectExpr(
        "string(id) AS value", f"if(id = 8, 'not/legal', '{topic}') AS topic"
    )
    with pytest.raises(PySparkException, match="'not/legal' is not a legal topic name"):
        rig.write(frame)
    assert rig.consume(topic) == []


def test_another_cluster_by_its_address_and_a_topic_that_it_does_not_create(
    rig: Rig, tmp_path: Path
) -> None:
    settings = {"auto.create.topics.enable": "false"}
    with start_processes(1, data_dir=tmp_path, settings=settings) as other:
        servers = {"kafka__bootstrap__servers": other.bootstrap_servers}
        other.create_topic("there", 1)
        rig.fill("there", 5, **servers)
        with BlockingClient(other.bootstrap_servers) as client:
            end = client.data_client.end_offsets([TopicPartition("there", 0)])
            assert client.run(end) == {TopicPartition("there", 0): 5}
        with pytest.raises(PySparkException) as caught:
            rig.fill("nowhere", 5, **servers)
    assert "topic 'nowhere' does not exist; create it first" in said(caught.value)
    assert "there" not in rig.cluster.topics()


def test_a_cluster_that_cannot_be_reached_is_told(rig: Rig) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.delivery.timeout.ms": "300"}
    frame = rig.spark.range(3).selectExpr("string(id) AS value")
    writer = frame.write.format("sparklog").mode("append").options(topic="t", **options)
    with pytest.raises(PySparkException, match="no node of the cluster can be reached"):
        writer.save()
