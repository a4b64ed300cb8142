"""Streams of Spark's own Kafka source and sink, from our topics to another one of ours."""

from collections import Counter
from pathlib import Path

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.types import OffsetSpec, TopicPartition
from tests.compat.spark_outcomes import Stream, Written
from tests.compat.spark_process import SparkProcess
from tests.support.proven import proves

pytestmark = [pytest.mark.spark, pytest.mark.process]

PARTITIONS, EACH = 2, 40
#: Whether the driver asks for offsets as a consumer that subscribes, as it did before Spark 3.1.
AS_A_MEMBER = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@proves("checkpoint", "spark")
@pytest.mark.parametrize("as_a_member", ["false", "true"])
def test_a_stream_goes_on_from_its_checkpoint_and_finds_new_topics(
    spark: SparkProcess, bootstrap: str, client: BlockingClient, tmp_path: Path, as_a_member: str
) -> None:
    name = f"streamed-{as_a_member}"
    client.admin.create_topic(name + "-out", PARTITIONS)
    cluster = {"kafka.bootstrap.servers": bootstrap}
    job = Stream(
        source={
            **cluster,
            "subscribePattern": name + "-in-.*",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "30",
            "kafka.group.id": name,
        },
        sink={**cluster, "topic": name + "-out", "checkpointLocation": str(tmp_path)},
        settings={AS_A_MEMBER: as_a_member},
    )
    written: Counter[bytes] = Counter()
    for run in range(2):  # the second finds more in the first topic, and another topic
        for number in range(run + 1):
            written.update(produce(client, f"{name}-in-{number}", f"{run}-{number}"))
        assert spark.run(job) == [Written()]
        assert Counter(values(client, name + "-out")) == written
    assert (name in client.admin.list_groups()) == (as_a_member == "true")
    assert client.admin.group_offsets(name) == {}  # its positions are in the checkpoint


def produce(client: BlockingClient, topic: str, prefix: str) -> list[bytes]:
    """Records for all partitions of a topic, which is made if it is missing."""
    if topic not in client.admin.list_topics():
        client.admin.create_topic(topic, PARTITIONS)
        client.admin.await_serving(topic)
    sent = [f"{prefix}-{number}".encode() for number in range(PARTITIONS * EACH)]
    with client.producer() as producer:
        for number, value in enumerate(sent):
            producer.send(topic, value, partition=number % PARTITIONS)
    return sent


def values(client: BlockingClient, topic: str) -> list[bytes]:
    """Everything in the topic, read without Spark."""
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    ends = client.list_offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))
    wanted = sum(end.offset for end in ends.values())
    found: list[bytes] = []
    with client.consumer() as consumer:
        consumer.assign(partitions)
        while len(found) < wanted:
            found += [each.value or b"" for each in consumer.poll()]
    return found
