"""What Spark's own Kafka source and sink do with our brokers, ``format("sparklog")`` does too."""

import re
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition

from sparklog.client.blocking import BlockingClient
from sparklog.types import OffsetSpec, TopicPartition
from tests.compat.read_cases import CASES as READ_CASES
from tests.compat.read_cases import Read
from tests.compat.spark_outcomes import Failure, Job, Outcome, Rows, Written
from tests.compat.spark_process import SparkProcess
from tests.compat.stated_differences import MEANT
from tests.compat.write_cases import CASES as WRITE_CASES
from tests.compat.write_cases import WRITER, Write
from tests.support.proven import proves
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.process]

BOTH = ("kafka", "sparklog")
POLL_SECONDS_MAX = 20.0
EVERYTHING = """\
SELECT IF(id % 3 = 0, NULL, string(id)) AS key, IF(id % 4 = 0, NULL, encode(string(id), 'UTF-8'))
  AS value, int(id % 2) AS partition, IF(id % 5 = 0, array(struct('h' AS key, X'FF' AS value),
  struct('n' AS key, CAST(NULL AS BINARY) AS value)), NULL) AS headers
FROM range(200)"""


def agree(name: str, kafka: Outcome, ours: Outcome, says: str | None = None) -> None:
    """The same, failures with what ``says`` so, or different as it is stated."""
    if name in MEANT:
        assert MEANT[name].ours(ours), ours
        return
    if says is None:
        same = ours == kafka
    else:
        same = isinstance(ours, Failure) and has(ours, says)
    assert same, f"ours: {ours}, Kafka: {kafka}"


def has(failure: Failure, says: str) -> bool:
    return re.search(says, failure.message, re.IGNORECASE) is not None


@proves("offsets", "spark")
@pytest.mark.parametrize("case", READ_CASES, ids=lambda case: case.name)
def test_a_read(spark: SparkProcess, bootstrap: str, case: Read) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, **case.options}
    given = {name: value for name, value in options.items() if value}
    kafka, ours = spark.run(Job(formats=BOTH, options=given))
    if case.fails is None:
        assert isinstance(kafka, Rows), kafka
        assert kafka.count == case.rows
    else:
        assert isinstance(kafka, Failure), kafka
        assert has(kafka, case.kafka or case.fails), kafka
    agree(case.name, kafka, ours, case.fails)


def test_a_schema_of_the_user(spark: SparkProcess, bootstrap: str) -> None:
    """Spark's source refuses one; ours takes it as a projection."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "numbs"}
    schema = "topic string, partition int, offset bigint"
    kafka, ours = spark.run(Job(formats=BOTH, options=options, schema=schema))
    assert isinstance(kafka, Failure), kafka
    assert isinstance(ours, Rows), ours
    assert ours.rows == {("numbs", 0): [("numbs", 0, n) for n in range(3)]}


@proves("produce", "spark")
@pytest.mark.parametrize("case", WRITE_CASES, ids=lambda case: case.name)
def test_a_write(spark: SparkProcess, bootstrap: str, client: BlockingClient, case: Write) -> None:
    topics = [case.topic.replace(WRITER, name) for name in BOTH]
    if case.partitions:
        for topic in topics:
            client.admin.create_topic(topic, case.partitions)
            client.admin.await_serving(topic)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": case.topic, **case.options}
    given = {name: value for name, value in options.items() if value}
    kafka, ours = spark.run(Job(formats=BOTH, options=given, sql=case.sql, mode=case.mode))
    if case.fails is None:
        assert isinstance(kafka, Written), kafka
        if case.options.get("kafka.acks") == "0":  # nobody has waited until they were there
            wait_for(lambda: all(len(records(client, topic)) == case.records for topic in topics))
        found = records(client, topics[0])
        assert len(found) == case.records
        if isinstance(ours, Written):
            assert records(client, topics[1]) == found
    else:
        assert isinstance(kafka, Failure), kafka
        assert has(kafka, case.kafka or case.fails), kafka
        assert not case.partitions or records(client, topics[1]) == []
    agree(case.name, kafka, ours, case.fails)


def test_a_time_for_each_row(spark: SparkProcess, bootstrap: str, client: BlockingClient) -> None:
    """Spark's sink leaves the column out, without a word."""
    for name in BOTH:
        client.admin.create_topic(f"timed.{name}", 1)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": f"timed.{WRITER}"}
    sql = "SELECT 'v' AS value, timestamp_millis(1234) AS timestamp"
    assert spark.run(Job(formats=BOTH, options=options, sql=sql)) == [Written(), Written()]
    largest = [
        client.list_offsets({TopicPartition(f"timed.{name}", 0): OffsetSpec.MAX_TIMESTAMP})
        for name in BOTH
    ]
    kafka, ours = (found.timestamp for each in largest for found in each.values())
    assert ours == 1234 < kafka


def records(client: BlockingClient, topic: str) -> list[tuple[Any, ...]]:
    """Every record but its time, read without Spark, by partition and offset."""
    partitions = [TopicPartition(topic, n) for n in client.topic(topic).partitions]
    ends = client.list_offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))
    wanted = sum(end.offset for end in ends.values())
    found: list[tuple[Any, ...]] = []
    with client.consumer() as consumer:
        consumer.assign(partitions)
        while len(found) < wanted:
            found += [
                (each.partition, each.offset, each.key, each.value, each.headers)
                for each in consumer.poll()
            ]
    return sorted(found, key=lambda record: record[:2])


@proves("fetch", "spark")
@pytest.mark.parametrize("writer", BOTH)
def test_what_one_has_written_all_read(
    spark: SparkProcess, bootstrap: str, client: BlockingClient, writer: str
) -> None:
    topic = f"written.{writer}"
    client.admin.create_topic(topic, 2)
    options = {"kafka.bootstrap.servers": bootstrap}
    job = Job(formats=(writer,), options={**options, "topic": topic}, sql=EVERYTHING)
    assert spark.run(job) == [Written()]
    reading = {**options, "subscribe": topic, "includeHeaders": "true"}
    kafka, ours = spark.run(Job(formats=BOTH, options=reading))
    assert isinstance(ours, Rows), ours
    assert ours == kafka
    rows = [
        (number, row[4], row[0], row[1], tuple(row[7] or ()))
        for (_, number), found in ours.rows.items()
        for row in found
    ]
    assert sorted(rows, key=lambda row: row[:2]) == records(client, topic)
    assert sorted(rows, key=lambda row: row[:2]) == peers_records(bootstrap, topic, len(rows))


def peers_records(bootstrap: str, topic: str, count: int) -> list[tuple[Any, ...]]:
    """As librdkafka reads them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False}
    )
    consumer.assign([Partition(topic, number, 0) for number in range(2)])
    found = []
    while len(found) < count:
        message = consumer.poll(POLL_SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        headers = tuple(message.headers() or ())
        place = (message.partition(), message.offset())
        found.append((*place, message.key(), message.value(), headers))
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def test_differences_are_those_of_cases() -> None:
    names = {case.name for case in (*READ_CASES, *WRITE_CASES)}
    assert len(names) == len(READ_CASES) + len(WRITE_CASES)
    assert names >= MEANT.keys()
