"""What clients make of being refused: an error that says why, and they go on."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import MessageSizeTooLargeError as AioMessageSizeTooLargeError
from aiokafka.errors import OffsetOutOfRangeError as AioOffsetOutOfRangeError
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.peer_confluent import SECONDS_MAX, new_consumer
from tests.clients.peer_kafka_python import (
    KafkaConsumer,
    KafkaProducer,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)
from tests.clients.peer_kafka_python import TopicPartition as KafkaPythonTopicPartition
from tests.support.proven import proves

LIMITED = "limited"
LIMIT = 5000
TOO_LARGE, SMALL = b"x" * 2 * LIMIT, b"small"


@pytest.fixture(scope="module", autouse=True)
def limited(create_topic: Callable[..., None]) -> None:
    create_topic(LIMITED, 1, {"max.message.bytes": str(LIMIT)})


@proves("refused record", "confluent")
def test_a_record_over_the_topics_limit_by_confluent(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    told: list[int] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        told.append(error.code() if error else 0)

    for value in (TOO_LARGE, SMALL):
        producer.produce(LIMITED, value, on_delivery=delivered)
        producer.flush(SECONDS_MAX)
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE, 0]


@proves("refused record", "kafka-python")
def test_a_record_over_the_topics_limit_by_kafka_python(bootstrap: str) -> None:
    # As an idempotent producer it would send nothing more after any refusal.
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    try:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(LIMITED, TOO_LARGE).get(SECONDS_MAX)
        assert producer.send(LIMITED, SMALL).get(SECONDS_MAX).offset >= 0
    finally:
        producer.close(timeout=SECONDS_MAX)


@proves("refused record", "aiokafka")
def test_a_record_over_the_topics_limit_by_aiokafka(bootstrap: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(AioMessageSizeTooLargeError):
                await producer.send_and_wait(LIMITED, TOO_LARGE)
            assert (await producer.send_and_wait(LIMITED, SMALL)).offset >= 0

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))


@proves("offset out of range", "confluent")
def test_an_offset_out_of_range_by_confluent(bootstrap: str) -> None:
    consumer = new_consumer(bootstrap, **{"auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(LIMITED, 0, 10_000)])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str().lower()
    finally:
        consumer.close()


@proves("offset out of range", "kafka-python")
def test_an_offset_out_of_range_by_kafka_python(bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")
    partition = KafkaPythonTopicPartition(LIMITED, 0)
    try:
        consumer.assign([partition])
        consumer.seek(partition, 10_000)
        with pytest.raises(OffsetOutOfRangeError):
            next(consumer)
    finally:
        consumer.close()


@proves("offset out of range", "aiokafka")
def test_an_offset_out_of_range_by_aiokafka(bootstrap: str) -> None:
    async def story() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")
        async with consumer:
            partition = AioTopicPartition(LIMITED, 0)
            consumer.assign([partition])
            consumer.seek(partition, 10_000)
            with pytest.raises(AioOffsetOutOfRangeError):
                await consumer.getone()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))


def test_a_missing_topic_is_not_created_by_reading(bootstrap: str, admin: AdminClient) -> None:
    consumer = new_consumer(bootstrap, **{"allow.auto.create.topics": False})
    try:
        consumer.assign([TopicPartition("missing", 0, 0)])
        assert consumer.poll(1) is None
        found = consumer.list_topics("missing", SECONDS_MAX).topics["missing"]
        assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()
    assert "missing" not in admin.list_topics(timeout=SECONDS_MAX).topics
