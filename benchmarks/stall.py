"""The time in which a producer gets no acknowledgement when a broker fails.

Owns: a steady load by librdkafka and the gaps between its acknowledgements.  Must not know whose
brokers these are, nor what happens to them.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "stall"
PARTITIONS = 6
REPLICAS = 3
#: Seconds between two records to a partition.
EVERY_S = 0.01
#: After this many acknowledgements of later records, a partition works again.
SETTLED = 20
WHOLE_SECONDS_MAX = 120.0
STALL_SECONDS_MAX = 120.0
_VALUE = bytes(100)


def longest_gap(acks: Sequence[float], since: float, until: float) -> float:
    """Return the longest time without an acknowledgement that reaches into [since, until].

    ``acks`` are the times of acknowledgements in ascending order.
    """
    first, last = bisect_left(acks, since), bisect_right(acks, until)
    times = [acks[first - 1] if first else since, *acks[first:last], until]
    return max(after - before for before, after in pairwise(times))


class SteadyLoad:
    """A producer with librdkafka's defaults and acks=all, to all partitions of a topic in turns."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] = {}) -> None:
        self.failures: list[str] = []
        #: The times at which each record of a partition was sent and acknowledged.
        self._sent: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._acked: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._producer = Producer({**_client(bootstrap), "acks": "all", **settings})
        self._thread = threading.Thread(target=self._run, name="steady-load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(30)

    def stall(self, partitions: Sequence[int], since: float, broken: float | None = None) -> float:
        """Return the longest gap of the partitions since ``since``, once all of them work again.

        ``broken`` (default: ``since``) is a time at which they certainly did not work.
        """
        end = time.monotonic() + STALL_SECONDS_MAX
        after = since if broken is None else broken
        with self._changed:
            while not all(self._works(number, after) for number in partitions):
                if not self._changed.wait(end - time.monotonic()):
                    return STALL_SECONDS_MAX
            now = time.monotonic()
            return max(longest_gap(self._acked[number], since, now) for number in partitions)

    def await_acks(self) -> None:
        """Wait until every partition works."""
        since = time.monotonic()
        if self.stall(range(PARTITIONS), since) >= STALL_SECONDS_MAX:
            raise RuntimeError("a partition takes no records")

    def forget(self) -> None:
        """Forget the acknowledgements so far."""
        with self._changed:
            for times in (*self._sent, *self._acked):
                del times[:-1]

    def _works(self, number: int, since: float) -> bool:
        sent = self._sent[number]
        return len(sent) >= SETTLED and sent[-SETTLED] > since

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            for number in range(PARTITIONS):
                with suppress(BufferError):  # the producer's queue is full
                    self._producer.produce(
                        TOPIC, _VALUE, partition=number, on_delivery=self._delivered
                    )
            due = max(due + EVERY_S, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        if error is not None:
            self.failures.append(str(error))
            return
        latency, number = message.latency(), message.partition()
        assert latency is not None
        assert number is not None
        with self._changed:
            self._sent[number].append(now - latency)
            self._acked[number].append(now)
            self._changed.notify_all()


class Topic:
    """The topic of the load, as an administration tool sees it."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient(_client(bootstrap))
        configs = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=configs)
        for future in self._admin.create_topics([topic]).values():
            future.result(60)

    def leaders(self) -> dict[int, list[int]]:
        """Return the partitions that each node leads."""
        led: dict[int, list[int]] = {}
        for number, state in self._states().items():
            led.setdefault(state.leader, []).append(number)
        return led

    def await_whole(self, also: Callable[[], bool] = lambda: True) -> None:
        """Wait until every replica is in sync."""
        end = time.monotonic() + WHOLE_SECONDS_MAX
        while not (self._is_whole() and also()):
            if time.monotonic() > end:
                raise RuntimeError(f"not whole again: {self._states()}")
            time.sleep(0.2)

    def _is_whole(self) -> bool:
        states = self._states()
        return len(states) == PARTITIONS and all(
            len(state.isrs) == REPLICAS and state.leader in state.isrs for state in states.values()
        )

    def _states(self) -> Mapping[int, Any]:
        found = self._admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return dict(found)


def _client(bootstrap: str) -> dict[str, Any]:
    """A client without its log messages, which would report each lost connection on stderr."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}
