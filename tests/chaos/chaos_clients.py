"""Clients that are not ours (librdkafka), under whose load brokers die, and what they saw.

Owns: the loads, and the history of what was sent, acknowledged and read.  Must not know who dies.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as Place

from sparklog.client.blocking import BlockingClient
from sparklog.errors import SparklogError
from sparklog.types import NO_OFFSET, OffsetSpec, TopicPartition
from tests.chaos.shared_history import SharedHistory
from tests.simulation.events import (
    Consumed,
    EndListed,
    LogId,
    ProduceAcked,
    ProduceInvoked,
    ProduceUnknown,
)

#: A record that takes longer has an unknown outcome, which is a finding: nothing is down so long.
DELIVERY_MS_MAX = 120_000
ACKS_ALL = -1
LOOK_SECONDS = 0.2
LIST_SECONDS_MAX = 5.0
_CONSUMED_AT_ONCE = 500
#: What a client keeps saying while a broker is away.
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)


@dataclass(slots=True, kw_only=True)
class Load:
    """What all clients of a run share.  ``complaints`` are answers that no client should get."""

    bootstrap: str
    logs: Sequence[LogId]
    history: SharedHistory
    over: threading.Event = field(default_factory=threading.Event)
    complaints: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    def client_settings(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": name,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 3_000,
            "topic.metadata.refresh.interval.ms": 1_000,
            "error_cb": partial(self._client_error, name),
        }

    def _client_error(self, name: str, error: KafkaError) -> None:
        if error.code() not in PASSING:
            self.complaints.append(f"{name}: {error}")


# producers


def produce(load: Load, name: str, chance: random.Random, settings: Mapping[str, Any]) -> None:
    """Bursts of small records, until the run is over and all of them have an outcome."""
    idempotent = bool(settings.get("enable.idempotence"))
    acks = settings.get("acks", ACKS_ALL)
    defaults = {
        "linger.ms": 2,
        "retry.backoff.ms": 20,
        "message.timeout.ms": DELIVERY_MS_MAX,
        "batch.size": 100_000,  # what an outage piles up has to fit into a segment
    }
    producer = Producer({**load.client_settings(name), **defaults, **settings})
    sent = 0
    while not load.over.is_set():
        for _ in range(chance.choice((1, 5, 20, 60))):
            sent += 1
            value = f"{name}/{sent}".encode() + b"." * chance.choice((0, 0, 30, 900))
            _send(load, producer, chance.choice(load.logs), name, value, acks, idempotent)
        end = time.monotonic() + chance.random() * 0.2
        while (left := end - time.monotonic()) > 0:
            producer.poll(left)
    if producer.flush(DELIVERY_MS_MAX / 1000 + 10):
        load.complaints.append(f"{name}: some records never had an outcome")


def _send(
    load: Load,
    producer: Producer,
    log: LogId,
    name: str,
    value: bytes,
    acks: int,
    idempotent: bool,
) -> None:
    history, op = load.history, load.history.new_op()
    history.record(
        ProduceInvoked(
            op=op,
            log=log,
            producer=name,
            values=(value,),
            acks=acks,
            idempotent=idempotent,
            resent=not idempotent,
            stream=name if idempotent else "",
            raises_epoch=idempotent,
        )
    )
    delivered = partial(_delivered, load, name, op)
    while True:
        try:
            producer.produce(log.topic, value, partition=log.partition, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(LOOK_SECONDS)
        except KafkaException as error:
            _delivered(load, name, op, error.args[0], None)
            return


def _delivered(
    load: Load, name: str, op: int, error: KafkaError | None, message: Message | None
) -> None:
    if error is not None or message is None:
        load.history.record(ProduceUnknown(op=op, reason=str(error)))
        load.counters["unknown_outcomes"] += 1
        load.complaints.append(f"{name}: a record was not delivered: {error}")
        return
    offset = message.offset()
    base_offset = NO_OFFSET if offset is None or offset < 0 else offset
    load.history.record(ProduceAcked(op=op, base_offset=base_offset))
    load.counters["acked_records"] += 1


def probe(load: Load, log: LogId) -> str:
    """One record into a partition; why that does not work, empty when it does."""
    name = "prober"
    before, complaints = load.counters["acked_records"], len(load.complaints)
    producer = Producer({**load.client_settings(name), "message.timeout.ms": DELIVERY_MS_MAX})
    op = load.history.new_op()
    _send(load, producer, log, name, b"%s/%d" % (name.encode(), op), ACKS_ALL, False)
    producer.flush(DELIVERY_MS_MAX / 1000 + 10)
    if load.counters["acked_records"] > before:
        return ""
    return "; ".join(load.complaints[complaints:]) or "no answer"


# readers


def consume(load: Load, name: str, chance: random.Random, *, leaps: bool) -> None:
    """Read every partition from its beginning to its end; ``leaps``: back again now and then."""
    settings = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({**load.client_settings(name), **settings, "check.crcs": True})
    places = {(log.topic, log.partition): (log, 0) for log in load.logs}
    consumer.assign([Place(*key, 0) for key in places])
    reading = Reading(load=load, name=name, places=places)
    leap_at = time.monotonic() + 5
    while not load.over.is_set():
        asked = load.history.position
        messages = consumer.consume(_CONSUMED_AT_ONCE, timeout=LOOK_SECONDS)
        reading.take(asked, messages)
        if leaps and time.monotonic() > leap_at:
            leap_at = time.monotonic() + 5 * chance.random()
            key, (log, offset) = chance.choice(list(places.items()))
            target = chance.randint(0, offset)
            with suppress(KafkaException):
                consumer.seek(Place(*key, target))
                places[key] = (log, target)
    consumer.close()


@dataclass(slots=True, kw_only=True)
class Reading:
    """Where a reader is in each log."""

    load: Load
    name: str
    places: dict[tuple[str, int], tuple[LogId, int]]

    def take(self, asked: int, messages: Sequence[Message]) -> None:
        """What one call gave, partition by partition."""
        runs: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
        for message in messages:
            error, topic, number = message.error(), message.topic(), message.partition()
            if error is not None:
                if error.code() not in PASSING:
                    where = f"{topic}-{number} at {message.offset()}"
                    self.load.complaints.append(f"{self.name}: {where}: {error}")
                continue
            assert topic is not None
            assert number is not None
            runs.setdefault((topic, number), []).append((message.offset(), message.value()))
        for key, records in runs.items():
            log, offset = self.places[key]
            self.places[key] = (log, records[-1][0] + 1)
            self.load.counters["records_read"] += len(records)
            self.load.history.record(
                Consumed(
                    asked=asked, reader=self.name, log=log, offset=offset, records=tuple(records)
                )
            )


def list_ends(load: Load, name: str, chance: random.Random) -> None:
    """Ask for the latest offset of one partition after the other, with our own client."""
    with BlockingClient(load.bootstrap, timeout_s=LIST_SECONDS_MAX) as client:
        while not load.over.is_set():
            log, asked = chance.choice(load.logs), load.history.position
            tp = TopicPartition(log.topic, log.partition)
            with suppress(SparklogError):  # its leader is away
                found = client.list_offsets({tp: int(OffsetSpec.LATEST)})[tp]
                load.history.record(
                    EndListed(
                        asked=asked, log=log, offset=found.offset, leader_epoch=found.leader_epoch
                    )
                )
            load.over.wait(0.05)


#: Every kind of client, by name.
CLIENTS: Mapping[str, Callable[[Load, str, random.Random], None]] = {
    "idempotent": partial(produce, settings={"enable.idempotence": True}),
    "packed": partial(produce, settings={"enable.idempotence": True, "compression.type": "lz4"}),
    "plain": partial(produce, settings={}),
    "hasty": partial(produce, settings={"acks": 1}),
    "reader": partial(consume, leaps=False),
    "leaper": partial(consume, leaps=True),
    "lister": list_ends,
}


def run_client(load: Load, name: str, client: Callable[[], None]) -> None:
    """A client until the run is over; what it breaks with is a complaint."""
    try:
        client()
    except Exception as error:
        load.complaints.append(f"{name} ended: {error!r}")
