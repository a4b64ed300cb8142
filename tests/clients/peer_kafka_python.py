"""kafka-python: pure Python.  It sends no header without a value."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

from tests.clients.rows import PARTITIONS, Place, Row

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how it reads its schemas
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import (
        InvalidProducerEpochError,
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RebalanceInProgressError,
    )

__all__ = [
    "InvalidProducerEpochError",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "KafkaPython",
    "MessageSizeTooLargeError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "TopicPartition",
]

SECONDS_MAX = 60.0


class KafkaPython:
    name = "kafka-python"
    empties = True
    null_headers = False
    timestamps = True

    def listing(self, bootstrap: str) -> tuple[set[int], dict[str, int]]:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            nodes = {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}
            topics = {t["name"]: len(t["partitions"]) for t in admin.describe_topics()}
            return nodes, topics
        finally:
            admin.close()

    def write(self, bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic, row.value, row.key, list(row.headers), row.partition, row.timestamp
                )
                for row in rows
            ]
            answers = [future.get(SECONDS_MAX) for future in sent]
        finally:
            producer.close(timeout=SECONDS_MAX)
        return [(a.partition, a.offset) for a in answers]

    def read(
        self, bootstrap: str, topic: str, count: int, timestamp: int | None = None
    ) -> list[Row]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100
        )
        try:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            if timestamp is None:
                consumer.seek_to_beginning()
            else:
                found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp))
                for partition in partitions:
                    consumer.seek(partition, found[partition].offset)
            return [row_of(message) for message in take(consumer, count)]
        finally:
            consumer.close()


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """``count`` messages, or an error."""
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        for messages in consumer.poll(200, max_records=count - len(found)).values():
            found += messages
    return found


def row_of(message: Any) -> Row:
    return Row(
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        tuple(message.headers),
    )
