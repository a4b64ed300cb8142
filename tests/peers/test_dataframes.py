"""``format("sparklog")`` at a real Kafka: what it writes there, and what it reads of it."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from sparklog.client.blocking import BlockingClient
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.peers.both import Both
from tests.peers.kafka_broker import KafkaBroker
from tests.support.faulty_brokers import FaultyBrokers, Slow, lost_answer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

JOBS = Path(__file__).with_name("dataframe_jobs.py")
QUICK_JVM = "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
JOBS_SECONDS_MAX = 200
POLL_SECONDS_MAX = 20.0
#: The version that only requests from inside the JVM have.
FROM_THE_JVM = (InitProducerIdRequest.API_KEY, 0)
TASKS, ROWS = 2, 80_000
#: The last has requests for several of them.
PARTITIONS = {"frame-packed": 3, "frame-interrupted": 3, "frame-keyed": 40}
VALUES = f"FROM range(0, {ROWS}, 1, {TASKS})"
PACKED = f"SELECT rpad(string(id), 100, ' ') AS value {VALUES}"
KEYED = f"SELECT string(id) AS key, rpad(string(id), 100, ' ') AS value {VALUES}"
#: Late enough for pieces to be acknowledged before, and in flight.
FAULT_AT = 9


@pytest.fixture(scope="module")
def read_back(
    both: Both, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[int]]:
    """What a Spark application has read of each topic that it wrote before."""
    (side,) = [side for side in both.sides if side.name == "kafka"]
    jobs = {"frame-packed": PACKED, "frame-interrupted": PACKED, "frame-keyed": KEYED}
    for topic, partitions in PARTITIONS.items():
        side.create(topic, partitions)
    late = Slow()
    with (
        BlockingClient(kafka.address) as client,
        FaultyBrokers(client, {}) as healthy,
        FaultyBrokers(client, {FAULT_AT: lost_answer}) as faulty,
        FaultyBrokers(client, {}, late) as slow,
    ):
        used = dict(zip(jobs, (healthy, faulty, slow), strict=True))
        told = [
            {"servers": used[topic].bootstrap_servers, "topic": topic, "sql": sql}
            for topic, sql in jobs.items()
        ]
        found = run(json.dumps(told), tmp_path_factory.mktemp("jobs"))
    assert all(FROM_THE_JVM in brokers.seen for brokers in used.values())
    assert faulty.produced > FAULT_AT
    assert max(late.partitions) > 1
    return found


def run(jobs: str, folder: Path) -> dict[str, list[int]]:
    environment = {"PYSPARK_SUBMIT_ARGS": QUICK_JVM, **os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, str(JOBS), jobs],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOBS_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def consumed(kafka: KafkaBroker, topic: str) -> dict[int, list[int]]:
    """The numbers in each partition, as librdkafka reads them; keys are the same or null."""
    places = [
        TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS[topic])
    ]
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "peers"})
    held: dict[int, list[int]] = defaultdict(list)
    try:
        left = sum(consumer.get_watermark_offsets(place)[1] for place in places)
        consumer.assign(places)
        while left > 0:
            messages = consumer.consume(10_000, POLL_SECONDS_MAX)
            assert messages, f"{left} records of {topic} do not come"
            left -= len(messages)
            for message in messages:
                assert message.error() is None, message.error()
                number = int(message.value() or b"")
                assert message.key() == (b"%d" % number if topic == "frame-keyed" else None)
                held[message.partition()].append(number)
    finally:
        consumer.close()
    return held


@pytest.mark.parametrize("topic", PARTITIONS)
def test_kafka_has_each_row_once_and_the_rows_of_a_task_in_order(
    kafka: KafkaBroker, read_back: dict[str, list[int]], topic: str
) -> None:
    held = consumed(kafka, topic)
    assert sorted(number for found in held.values() for number in found) == list(range(ROWS))
    assert len(held) == PARTITIONS[topic]
    for found in held.values():
        for task in range(TASKS):
            own = [number for number in found if number * TASKS // ROWS == task]
            assert own == sorted(own)
    assert read_back[topic] == list(range(ROWS))
