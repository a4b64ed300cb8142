"""A client that is not ours, under whose load processes are killed, and what it may expect.

Owns: the load, what was acknowledged of it, and the processes of this test.
"""

import threading
import time

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.waiting import wait_for

TOPIC = "load"
PARTITIONS = 6


def processes(*modules: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.cmdline()[-1:] and child.cmdline()[-1] in modules:
                found.append(child)
        except psutil.Error:
            continue
    return found


class Load:
    """One idempotent producer that numbers its records, and what was acknowledged of them.

    Records have at least ``record_bytes``.
    """

    def __init__(self, bootstrap: str, record_bytes: int = 0) -> None:
        self._record_bytes = record_bytes
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": 120_000,
                "queue.buffering.max.kbytes": 64 * 1024,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def await_more(self, count: int) -> None:
        """Wait until ``count`` more records were acknowledged."""
        with self._progress:
            wanted = self._count + count
            assert self._progress.wait_for(lambda: self._count >= wanted, timeout=60)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % PARTITIONS
            # Spaces behind a number do not change it.
            value = (b"%d" % number).ljust(self._record_bytes)
            try:
                self._producer.produce(
                    TOPIC, value, partition=partition, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0 if number % 500 else 0.02)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        with self._progress:
            self.acknowledged[partition].append(int(value))
            self._count += 1
            self._progress.notify_all()


def stored(bootstrap: str) -> dict[int, list[int]]:
    """All values of each partition, in the order of offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    values: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {ended} came to their end"
        for message in consumer.consume(10_000, timeout=0.3):
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            assert value is not None
            values[partition].append(int(value))
    consumer.close()
    return values


def kill_one(module: str) -> None:
    """The first of its kind; one that was just killed may not be back yet.

    Waits until it is gone, so that the next call finds the one that follows it.
    """
    wait_for(lambda: processes(module))
    killed = next(iter(processes(module)), None)
    assert killed is not None, f"{module} has ended by itself"
    killed.kill()
    wait_for(lambda: killed not in processes(module))
