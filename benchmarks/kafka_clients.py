"""Clients of Kafka and of sparklog, in turns: throughput, latency, CPU and memory of the servers.

Owns: the workloads and their figures.  Must not know how a load is made or a server started.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import quantiles

from rich.console import Console

from benchmarks import perf_tool
from benchmarks.kafka_nodes import Pair, Side, java_tools, pair
from benchmarks.librdkafka import consume, latencies, new_topic, produce
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale

PARTITIONS = 6
RATE = 500
VALUE_BYTES = (100, 1000)
#: ``reach`` and ``aim`` of the figures.
PRODUCE_ASKED = {1: (1.0, 1.5), 3: (1.0, 2.0)}
CONSUME_ASKED = (1.0, 1.5)
MEMORY_ASKED = (3.0, 6.0)
LATENCY_ASKED = (0.7, 1.0)
_ACKS_ALL = -1

#: Produces a number of values of a size in bytes into a topic, and returns MB/s.
Load = Callable[[Side, str, int, int], float]


def one_broker(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, with acks=1."""
    return _clients("one-broker", 1, 1, console, scale)


def three_brokers(console: Console, scale: Scale) -> list[Measured]:
    """Measure three brokers of each, with three replicas and acks=all."""
    return _clients("three-brokers", 3, _ACKS_ALL, console, scale)


def short(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, with librdkafka and the smaller values only."""
    part = "short"
    with pair(1) as both:
        console.print("beside Kafka: librdkafka produces and consumes, and its latency")
        return [
            *_produced_by_librdkafka(part, both, 1, VALUE_BYTES[0], scale),
            *_consumed(part, both, scale),
            *_latency(part, both, scale),
        ]


def _clients(part: str, brokers: int, acks: int, console: Console, scale: Scale) -> list[Measured]:
    found: list[Measured] = []
    with pair(brokers) as both:
        for value_bytes in VALUE_BYTES:
            console.print(f"{part}: librdkafka produces values of {value_bytes} bytes")
            found += _produced_by_librdkafka(part, both, acks, value_bytes, scale)
        for value_bytes in VALUE_BYTES:
            console.print(f"{part}: Java's perf tool produces values of {value_bytes} bytes")
            figures = _produce_figures(part, "Java", value_bytes, acks, brokers)
            # Each side has a JVM of its own, so that neither is warmer than the other.
            with java_tools(both.folder) as tools:
                found += _produced(both, figures, partial(_java, tools, acks), value_bytes, scale)
        if brokers == 1:
            console.print(f"{part}: consume")
            found += _consumed(part, both, scale)
        console.print(f"{part}: latency")
        return [*found, *_latency(part, both, scale)]


def _produced_by_librdkafka(
    part: str, both: Pair, acks: int, value_bytes: int, scale: Scale
) -> list[Measured]:
    figures = _produce_figures(part, "librdkafka", value_bytes, acks, both.count)
    return _produced(both, figures, partial(_librdkafka, acks), value_bytes, scale)


def _produce_figures(
    part: str, producer: str, value_bytes: int, acks: int, replicas: int
) -> tuple[Figure, Figure]:
    reach, aim = PRODUCE_ASKED[replicas]
    words = "acks=all" if acks == _ACKS_ALL else f"acks={acks}"
    by = "librdkafka" if producer == "librdkafka" else "Java's perf tool"
    key = f"{part}/produce/{producer}/{value_bytes}"
    return (
        Figure(
            key=key,
            what=f"{by} produces values of {value_bytes} bytes, {words}, RF {replicas}",
            unit="MB/s",
            reach=reach,
            aim=aim,
        ),
        server_cpu(f"{key}/cpu"),
    )


def server_cpu(key: str, what: str = "CPU of all servers for it") -> Figure:
    return Figure(key=key, what=what, unit="s/GB", less_is_better=True, digits=2)


def _produced(
    both: Pair, figures: tuple[Figure, ...], load: Load, value_bytes: int, scale: Scale
) -> list[Measured]:
    """Every run produces the same number of bytes, into a new topic."""
    messages = scale.messages * VALUE_BYTES[0] // value_bytes

    def run(side: Side) -> tuple[float, float]:
        with new_topic(side.bootstrap, PARTITIONS, both.count) as topic:
            before = side.cpu_seconds()
            speed = load(side, topic, messages, value_bytes)
            return speed, cpu_by_gigabyte(side, before, messages * value_bytes)

    return take_turns(figures, lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)


def cpu_by_gigabyte(side: Side, before: float, moved_bytes: int) -> float:
    return (side.cpu_seconds() - before) / (moved_bytes / 1e9)


def _librdkafka(acks: int, side: Side, topic: str, messages: int, value_bytes: int) -> float:
    taken = produce(
        side.bootstrap, topic, PARTITIONS, messages=messages, value_bytes=value_bytes, acks=acks
    )
    return messages * value_bytes / 1e6 / taken


def _java(
    tools: object, acks: int, side: Side, topic: str, messages: int, value_bytes: int
) -> float:
    return perf_tool.produce(
        tools,
        side.bootstrap,
        topic,
        messages=messages,
        value_bytes=value_bytes,
        acks="all" if acks == _ACKS_ALL else str(acks),
    )


def _consumed(part: str, both: Pair, scale: Scale) -> list[Measured]:
    size = VALUE_BYTES[0]
    reach, aim = CONSUME_ASKED
    figures = (
        Figure(
            key=f"{part}/consume",
            what=f"librdkafka consumes values of {size} bytes, assigned partitions",
            unit="MB/s",
            reach=reach,
            aim=aim,
        ),
        server_cpu(f"{part}/consume/cpu"),
    )
    with (
        new_topic(both.ours.bootstrap, PARTITIONS, both.count) as ours,
        new_topic(both.kafka.bootstrap, PARTITIONS, both.count) as theirs,
    ):
        for side, topic in ((both.ours, ours), (both.kafka, theirs)):
            _librdkafka(1, side, topic, scale.messages, size)
        return take_turns(
            figures,
            lambda: consumed(both.ours, ours, PARTITIONS, scale.messages, size),
            lambda: consumed(both.kafka, theirs, PARTITIONS, scale.messages, size),
            scale.rounds,
        )


def consumed(
    side: Side, topic: str, partitions: int, messages: int, value_bytes: int
) -> tuple[float, float]:
    """Return MB/s and the CPU of the servers."""
    before = side.cpu_seconds()
    taken = consume(side.bootstrap, topic, partitions, messages=messages)
    moved = messages * value_bytes
    return moved / 1e6 / taken, cpu_by_gigabyte(side, before, moved)


def _latency(part: str, both: Pair, scale: Scale) -> list[Measured]:
    """Measure latency, and the memory of the servers after all of the load."""

    def run(side: Side) -> tuple[float, ...]:
        with new_topic(side.bootstrap, PARTITIONS, both.count) as topic:
            found = latencies(
                side.bootstrap, topic, PARTITIONS, rate=RATE, seconds=scale.latency_seconds
            )
        cuts = quantiles(found, n=1000)
        return cuts[499], cuts[989], cuts[998], *side.resident_megabytes()

    figures = [*_latency_figures(part, both.count), *_memory_figures(part, both.brokers)]
    return take_turns(figures, lambda: run(both.ours), lambda: run(both.kafka), scale.rounds)


def _latency_figures(part: str, replicas: int) -> Iterator[Figure]:
    for name in ("p50", "p99", "p99.9"):
        reach, aim = LATENCY_ASKED if name == "p99" else (None, None)
        yield Figure(
            key=f"{part}/latency/{name}",
            what=f"end-to-end latency, {RATE} records/s, acks=all, RF {replicas}, {name}",
            unit="ms",
            less_is_better=True,
            reach=reach,
            aim=aim,
            digits=2,
        )


def _memory_figures(part: str, brokers: str) -> Iterator[Figure]:
    reach, aim = MEMORY_ASKED
    for key, what in (
        ("memory", "the broker processes (Kafka's are controllers too)"),
        ("memory/all", "all processes of the servers"),
    ):
        yield Figure(
            key=f"{part}/{key}",
            what=f"resident memory after load, {brokers}: {what}",
            unit="MB",
            less_is_better=True,
            reach=reach,
            aim=aim,
            digits=0,
        )
