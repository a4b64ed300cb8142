"""Loads by librdkafka with its defaults: as fast as it can produce or consume, or at a steady rate.

Owns: the clients.  Must not know whose brokers they talk to.
"""

import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_LOOK_S = 0.01
_PATIENCE_S = 180.0
#: The longest call in seconds, because Ctrl-C is noticed between two calls.
_CALL_S = 0.5
_LEADERS_S = 0.2
_MESSAGES_AT_ONCE = 10_000
_TIME = struct.Struct(">d")
_numbers = count()


def produce(
    bootstrap: str, topic: str, partitions: int, *, messages: int, value_bytes: int, acks: int
) -> float:
    """Return the seconds from the first call to the last acknowledgement."""
    failed: list[KafkaError] = []
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "delivery.report.only.error": True,
        "log_level": 4,
    })  # fmt: skip
    value = bytes(value_bytes)
    began = time.perf_counter()
    for number in range(messages):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=number % partitions,
                    on_delivery=lambda error, _: failed.append(error),
                )
                break
            except BufferError:
                producer.poll(_LOOK_S)
    _flush(producer)
    taken = time.perf_counter() - began
    assert not failed, failed[0]
    return taken


def consume(bootstrap: str, topic: str, partitions: int, *, messages: int) -> float:
    """Return the seconds from the assignment to the last of ``messages`` messages.

    Pauses of the client are not measured.  By default the client pauses for a second whenever
    100,000 messages are queued.  It also pauses at its start when it is assigned partitions just
    after it has left the node that it asked first, and there is no coordinator.
    """
    consumer = _consumer(bootstrap, {"fetch.queue.backoff.ms": 1})
    consumer.list_topics(topic, _PATIENCE_S)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    _receive(consumer, messages)
    taken = time.perf_counter() - began
    consumer.close()
    return taken


def consume_with_group(bootstrap: str, topic: str, group: str, *, messages: int) -> float:
    """Return the seconds from the assignment to the last of ``messages`` messages.

    The only member of a new group; it commits as by default.  See ``consume`` for its pauses.
    """
    settings: dict[str, str | int] = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = _consumer(bootstrap, settings)
    assigned: list[float] = []
    consumer.subscribe([topic], on_assign=lambda *_: assigned.append(time.perf_counter()))
    _receive(consumer, messages)
    taken = time.perf_counter() - assigned[0]
    consumer.close()
    return taken


def checked_bytes(bootstrap: str, topic: str, *, messages: int) -> int:
    """Read a topic with one partition from offset 0; return the bytes of all values.

    The client checks the CRC of each batch.  The offsets must be those from 0 to ``messages`` - 1.
    """
    consumer = _consumer(bootstrap, {"fetch.queue.backoff.ms": 1, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offset = size = 0
    for found in _received(consumer, messages):
        for message in found:
            assert message.error() is None, message.error()
            assert message.offset() == offset, f"offset {message.offset()} in place of {offset}"
            offset += 1
            size += len(message.value())
    consumer.close()
    return size


def _receive(consumer: Consumer, messages: int) -> None:
    for _ in _received(consumer, messages):
        pass


def _received(consumer: Consumer, messages: int) -> Iterator[Sequence[Message]]:
    """Yield the next ``messages`` messages, many at once."""
    seen, last = 0, time.monotonic()
    while seen < messages:
        found = consumer.consume(min(_MESSAGES_AT_ONCE, messages - seen), _CALL_S)
        seen += len(found)
        if found:
            last = time.monotonic()
            yield found
        assert time.monotonic() < last + _PATIENCE_S, f"only {seen} of {messages} messages came"


def latencies(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    rate: int,
    seconds: float,
    value_bytes: int = 100,
) -> list[float]:
    """Return the milliseconds from ``produce`` to ``poll`` of each message.

    acks=all, with ``rate`` messages a second.  The topic has a short record in each partition; the
    measurement begins when these have arrived.
    """
    messages = int(rate * seconds)
    first = threading.Semaphore(0)
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[float] = []

    def listen() -> None:
        deadline = time.monotonic() + seconds + _PATIENCE_S
        while len(found) < messages and time.monotonic() < deadline:
            message = consumer.poll(_LOOK_S)
            if message is None or message.error() is not None:
                continue
            now, value = time.perf_counter(), message.value()
            if len(value) < _TIME.size:
                first.release()
            else:
                found.append((now - _TIME.unpack_from(value)[0]) * 1e3)

    listener = threading.Thread(target=listen, name="listener", daemon=True)
    listener.start()
    for _ in range(partitions):
        assert first.acquire(timeout=_PATIENCE_S), "a partition gives no records"
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    padding = bytes(value_bytes - _TIME.size)
    began = time.perf_counter()
    for number in range(messages):
        producer.poll(max(0.0, began + number / rate - time.perf_counter()))
        sent = _TIME.pack(time.perf_counter()) + padding
        producer.produce(topic, sent, partition=number % partitions)
    _flush(producer)
    listener.join()
    consumer.close()
    assert len(found) == messages, f"{len(found)} of {messages} messages came"
    return found


def create_topic(
    bootstrap: str, topic: str, partitions: int, replicas: int, configs: Mapping[str, str] = {}
) -> None:
    """Create a topic of which one replica may be missing, if it has several."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    least = {"min.insync.replicas": str(max(1, replicas - 1))}
    new = NewTopic(topic, partitions, replicas, config={**least, **configs})
    admin.create_topics([new])[topic].result(_PATIENCE_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.delete_topics([topic])[topic].result(_PATIENCE_S)


@contextmanager
def new_topic(
    bootstrap: str, partitions: int, replicas: int, configs: Mapping[str, str] = {}
) -> Iterator[str]:
    """Create a topic with a record in each partition, so that every partition has a leader.

    The topic is deleted at the end, but not after a failure, when the cluster may not answer.
    """
    name = f"bench-{next(_numbers)}"
    create_topic(bootstrap, name, partitions, replicas, configs)
    _await_leaders(bootstrap, name, partitions)
    produce(bootstrap, name, partitions, messages=partitions, value_bytes=1, acks=-1)
    yield name
    delete_topic(bootstrap, name)


def _await_leaders(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until each leader answers.

    A producer with records for many leaders that do not answer asks far more often.  Such a flood
    of refused requests would delay the leaders.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    deadline = time.monotonic() + _PATIENCE_S
    newest = OffsetSpec.latest()
    asked = {TopicPartition(topic, number): newest for number in range(partitions)}
    while True:
        failed = [each for each in admin.list_offsets(asked).values() if each.exception()]
        if not failed:
            return
        assert time.monotonic() < deadline, failed[0].exception()
        time.sleep(_LEADERS_S)


def _flush(producer: Producer) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while left := producer.flush(_CALL_S):
        assert time.monotonic() < deadline, f"{left} messages were not acknowledged"


def _consumer(bootstrap: str, settings: Mapping[str, str | int] = {}) -> Consumer:
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False, **settings,
    })  # fmt: skip
