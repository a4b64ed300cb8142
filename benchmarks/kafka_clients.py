"""librdkafka against Kafka and against us, in turns: throughput, latency, and what servers use.

Owns: the workloads and their rows.  Must not know how a load is made or a server started.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console

from benchmarks.harness import Row, in_turns
from benchmarks.kafka_nodes import Pair, Side, pair
from benchmarks.librdkafka import consume, create_topic, delete_topic, latencies, produce
from benchmarks.scale import Scale

PARTITIONS = 6
RATE = 500
_ACKS_ALL = -1
_numbers = count()


def rows(console: Console, scale: Scale) -> list[Row]:
    """Every row; says on the console what is being measured."""
    found: list[Row] = []
    for servers, acks in ((1, 1), (3, _ACKS_ALL)):
        with (
            tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
            pair(Path(name), servers) as both,
        ):
            for value_bytes in (100, 1000):
                console.print(f"produce: {value_bytes} bytes, {servers} brokers, acks={acks}")
                found += _produced(both, acks, value_bytes, scale)
            if servers == 1:
                console.print("consume")
                found.append(_consumed(both, scale))
            console.print(f"latency: {servers} brokers")
            found += _latency(both, scale)
            found.append(_memory(both))
    return found


def _produced(both: Pair, acks: int, value_bytes: int, scale: Scale) -> list[Row]:
    """Every run carries as many bytes."""
    messages = scale.messages * 100 // value_bytes
    megabytes = messages * value_bytes / 1e6
    used: dict[str, list[float]] = {both.ours.name: [], both.kafka.name: []}

    def run(side: Side) -> float:
        with _topic(side, both.count) as topic:
            before = side.cpu_seconds()
            taken = produce(
                side.bootstrap,
                topic,
                PARTITIONS,
                messages=messages,
                value_bytes=value_bytes,
                acks=acks,
            )
            used[side.name].append((side.cpu_seconds() - before) / megabytes * 1e3)
            return megabytes / taken

    ours, kafka = in_turns(lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)
    words = "acks=all" if acks == _ACKS_ALL else f"acks={acks}"
    what = f"librdkafka produces values of {value_bytes} bytes, {words}, RF {both.count}"
    cpu = [median(used[side.name][1:]) for side in (both.ours, both.kafka)]
    return [
        Row(what=what, unit="MB/s", ours=ours, base=kafka, asked=1.0),
        Row(what="  CPU of all servers for it", unit="s/GB", ours=cpu[0], base=cpu[1], asked=None),
    ]


def _consumed(both: Pair, scale: Scale) -> Row:
    with _topic(both.ours, both.count) as ours, _topic(both.kafka, both.count) as theirs:
        for side, topic in ((both.ours, ours), (both.kafka, theirs)):
            produce(
                side.bootstrap,
                topic,
                PARTITIONS,
                messages=scale.messages,
                value_bytes=100,
                acks=1,
            )

        def run(side: Side, topic: str) -> float:
            taken = consume(side.bootstrap, topic, PARTITIONS, messages=scale.messages)
            return scale.messages * 100 / 1e6 / taken

        found = in_turns(
            lambda: run(both.ours, ours), lambda: run(both.kafka, theirs), scale.rounds
        )
    what = "librdkafka consumes values of 100 bytes, assigned partitions"
    return Row(what=what, unit="MB/s", ours=found[0], base=found[1], asked=1.0)


def _latency(both: Pair, scale: Scale) -> Iterator[Row]:
    samples: dict[str, list[list[float]]] = {both.ours.name: [], both.kafka.name: []}

    def run(side: Side) -> float:
        with _topic(side, both.count) as topic:
            found = latencies(
                side.bootstrap, topic, PARTITIONS, rate=RATE, seconds=scale.latency_seconds
            )
        samples[side.name].append(found)
        return median(found)

    in_turns(lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)
    cuts = {
        name: quantiles([time for times in runs[1:] for time in times], n=1000)
        for name, runs in samples.items()
    }
    for label, permille, asked in (("p50", 500, None), ("p99", 990, 1 / 0.7), ("p99.9", 999, None)):
        yield Row(
            what=f"end-to-end latency, {RATE} records/s, acks=all, RF {both.count}, {label}",
            unit="ms",
            ours=cuts[both.ours.name][permille - 1],
            base=cuts[both.kafka.name][permille - 1],
            asked=asked,
            at_most=True,
        )


def _memory(both: Pair) -> Row:
    return Row(
        what=f"resident memory after it, {both.count} brokers, all processes of the servers",
        unit="MB",
        ours=both.ours.resident_megabytes(),
        base=both.kafka.resident_megabytes(),
        asked=1 / 3,
        at_most=True,
    )


@contextmanager
def _topic(side: Side, replicas: int) -> Iterator[str]:
    """A new topic with a record in each partition, so that all are led.  Deleted at the end."""
    name = f"bench-{next(_numbers)}"
    create_topic(side.bootstrap, name, PARTITIONS, replicas)
    try:
        produce(side.bootstrap, name, PARTITIONS, messages=PARTITIONS, value_bytes=1, acks=-1)
        yield name
    finally:
        delete_topic(side.bootstrap, name)
