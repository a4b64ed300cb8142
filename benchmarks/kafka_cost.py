"""The cost of partitions and brokers: one load on more and more of them, both sides in turns.

Owns: the workloads and their figures.  Must not know how a load is made or a server started.
"""

from collections.abc import Sequence

from rich.console import Console

from benchmarks.kafka_clients import consumed, cpu_by_gigabyte, server_cpu
from benchmarks.kafka_nodes import Pair, Side, pair
from benchmarks.librdkafka import new_topic, produce
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale

PARTITIONS = (10, 100, 1000)
BROKERS = (1, 3, 5)
#: For the load that is put on more and more brokers.
PARTITIONS_OF_BROKERS = 30
VALUE_BYTES = 100


def partitions(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, with one replica and a load on all partitions."""
    found: list[Measured] = []
    with pair(1) as both:
        for count in PARTITIONS:
            console.print(f"partitions: {count:,}")
            words = f"{count:,} partitions"
            found += _loaded(both, count, _figures("partitions", count, words), scale)
    return found


def brokers(console: Console, scale: Scale) -> list[Measured]:
    """Measure brokers with one replica: the cost of brokers, not of copies."""
    found: list[Measured] = []
    for count in BROKERS:
        console.print(f"brokers: {count}")
        with pair(count) as both:
            words = f"{both.brokers}, {PARTITIONS_OF_BROKERS} partitions"
            figures = [*_figures("brokers", count, words), _memory(both)]
            found += _loaded(both, PARTITIONS_OF_BROKERS, figures, scale)
    return found


def _figures(part: str, count: int, words: str) -> list[Figure]:
    both_ways = f"produced and consumed by librdkafka, values of {VALUE_BYTES} bytes"
    return [
        Figure(key=f"{part}/produce/{count}", what=f"{words}: produced, acks=1, RF 1", unit="MB/s"),
        Figure(key=f"{part}/consume/{count}", what=f"{words}: consumed", unit="MB/s"),
        server_cpu(f"{part}/cpu/{count}", f"{words}: CPU of all servers, {both_ways}"),
    ]


def _memory(both: Pair) -> Figure:
    return Figure(
        key=f"brokers/memory/{both.count}",
        what=f"{both.brokers}: resident memory of all servers",
        unit="MB",
        less_is_better=True,
        digits=0,
    )


def _loaded(both: Pair, partitions: int, figures: Sequence[Figure], scale: Scale) -> list[Measured]:
    """Load one topic in all rounds: the cost of creating its partitions is not measured."""
    messages = scale.cost_messages
    moved = messages * VALUE_BYTES

    def run(side: Side, topic: str) -> tuple[float, ...]:
        before = side.cpu_seconds()
        taken = produce(
            side.bootstrap,
            topic,
            partitions,
            messages=messages,
            value_bytes=VALUE_BYTES,
            acks=1,
        )
        speed, _ = consumed(side, topic, partitions, messages, VALUE_BYTES)
        _, memory = side.resident_megabytes()
        found = (moved / 1e6 / taken, speed, cpu_by_gigabyte(side, before, moved), memory)
        return found[: len(figures)]

    with (
        new_topic(both.ours.bootstrap, partitions, 1) as ours,
        new_topic(both.kafka.bootstrap, partitions, 1) as theirs,
    ):
        return take_turns(
            figures, lambda: run(both.ours, ours), lambda: run(both.kafka, theirs), scale.rounds
        )
