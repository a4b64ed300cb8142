"""Loads by transactional producers of librdkafka, and by the same producer without transactions.

Owns: the producers.  Must not know whose brokers they talk to.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

_PATIENCE_S = 60.0
_LOOK_S = 0.01
#: Messages between two looks at the clock.
_MESSAGES_AT_ONCE = 100
_numbers = count()


class Taken(NamedTuple):
    """The seconds of one transaction: from its begin, and of its commit alone."""

    whole_s: float
    commit_s: float


def transactional_producer(bootstrap: str) -> Producer:
    """A producer with a transactional id of its own, which the coordinator knows."""
    name = f"bench-{next(_numbers)}-{time.time_ns()}"
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 2,
    })  # fmt: skip
    producer.init_transactions(_PATIENCE_S)
    return producer


def one_after_another(
    producer: Producer, topic: str, partitions: Sequence[int], transactions: int
) -> list[Taken]:
    """Transactions with one record of 100 bytes for each of the partitions."""
    found = []
    for _ in range(transactions):
        began = time.perf_counter()
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(topic, bytes(100), partition=partition)
        committing = time.perf_counter()
        producer.commit_transaction(_PATIENCE_S)
        ended = time.perf_counter()
        found.append(Taken(ended - began, ended - committing))
    return found


def at_once(bootstrap: str, topic: str, partitions: int, producers: int, each: int) -> float:
    """Return the transactions a second of many producers, with one record each."""
    ready = threading.Barrier(producers + 1)

    def work(number: int) -> None:
        producer = transactional_producer(bootstrap)
        one_after_another(producer, topic, [number % partitions], 1)
        ready.wait(_PATIENCE_S)
        one_after_another(producer, topic, [number % partitions], each)

    with ThreadPoolExecutor(producers) as pool:
        jobs = [pool.submit(work, number) for number in range(producers)]
        with suppress(threading.BrokenBarrierError):  # a job tells why
            ready.wait(_PATIENCE_S)
        began = time.perf_counter()
        for job in jobs:
            job.result()
    return producers * each / (time.perf_counter() - began)


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    messages: int,
    value_bytes: int,
    commit_every_s: float | None,
    abort_every: int | None = None,
) -> float:
    """Return the seconds from the first call to the last acknowledgement or commit.

    The producer is idempotent, with acks=all; without ``commit_every_s`` it has no transactions.
    One of ``abort_every`` transactions is aborted, after its records were acknowledged.  Before the
    first call the producer has a connection to each leader.
    """
    settings = {"bootstrap.servers": bootstrap, "delivery.report.only.error": True, "log_level": 2}
    if commit_every_s is None:
        producer = Producer({**settings, "enable.idempotence": True})
    else:
        name = f"bench-{next(_numbers)}-{time.time_ns()}"
        producer = Producer({**settings, "transactional.id": name})
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()

    transactions = count(1)

    def end() -> None:
        aborts = abort_every is not None and next(transactions) % abort_every == 0
        if commit_every_s is None or aborts:
            left = producer.flush(_PATIENCE_S)
            assert not left, f"{left} messages were not acknowledged"
        if aborts:
            producer.abort_transaction(_PATIENCE_S)
        elif commit_every_s is not None:
            producer.commit_transaction(_PATIENCE_S)

    for partition in range(partitions):
        _send(producer, topic, b"", partition)
    end()
    if commit_every_s is not None:
        producer.begin_transaction()
    value = bytes(value_bytes)
    began = committed = time.perf_counter()
    for first in range(0, messages, _MESSAGES_AT_ONCE):
        for number in range(first, min(first + _MESSAGES_AT_ONCE, messages)):
            _send(producer, topic, value, number % partitions)
        now = time.perf_counter()
        if commit_every_s is not None and now >= committed + commit_every_s:
            end()
            producer.begin_transaction()
            committed = time.perf_counter()
    end()
    return time.perf_counter() - began


def _send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition, on_delivery=_delivered)
            return
        except BufferError:
            producer.poll(_LOOK_S)


def _delivered(error: object, _: object) -> None:
    raise KafkaException(error)  # only failures are reported
