"""confluent-kafka: librdkafka through its Python binding."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.clients.rows import PARTITIONS, Place, Row

SECONDS_MAX = 60.0


class Confluent:
    name = "confluent"
    empties = True
    null_headers = True
    timestamps = True

    def listing(self, bootstrap: str) -> tuple[set[int], dict[str, int]]:
        found = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS_MAX)
        topics = {name: len(topic.partitions) for name, topic in found.topics.items()}
        return set(found.brokers), topics

    def write(self, bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
        acknowledged: list[Place] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            acknowledged.append((message.partition(), message.offset()))

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 20,
            }
        )
        for row in rows:
            producer.produce(
                topic,
                row.value,
                row.key,
                row.partition,
                timestamp=row.timestamp,
                headers=list(row.headers),
                on_delivery=delivered,
            )
        assert producer.flush(SECONDS_MAX) == 0
        return acknowledged

    def read(
        self, bootstrap: str, topic: str, count: int, timestamp: int | None = None
    ) -> list[Row]:
        consumer = new_consumer(bootstrap)
        try:
            wanted = [
                TopicPartition(topic, number, OFFSET_BEGINNING if timestamp is None else timestamp)
                for number in range(PARTITIONS)
            ]
            if timestamp is not None:
                wanted = consumer.offsets_for_times(wanted, SECONDS_MAX)
            consumer.assign(wanted)
            return [row_of(message) for message in take(consumer, count)]
        finally:
            consumer.close()


def new_consumer(bootstrap: str, **options: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",  # it insists on one
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            **options,
        }
    )


def take(consumer: Consumer, count: int) -> list[Any]:
    """``count`` messages, or an error."""
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        for message in consumer.consume(count - len(found), timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def row_of(message: Any) -> Row:
    return Row(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
