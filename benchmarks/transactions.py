"""Transactions beside Kafka in turns: small ones, large ones, and those of many producers.

Owns: the workloads and their figures.  Must not know how a load is made or a server started.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median, quantiles

from rich.console import Console

from benchmarks import perf_tool, transaction_load
from benchmarks.kafka_clients import VALUE_BYTES, cpu_by_gigabyte, server_cpu
from benchmarks.kafka_nodes import Pair, Side, java_tools, pair
from benchmarks.librdkafka import new_topic
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from benchmarks.transaction_load import at_once, one_after_another, transactional_producer

BROKERS = 3
PARTITIONS = 6
#: Transactions of one run, and of a producer beside many others.
TRANSACTIONS = 300
PRODUCERS = 200
EACH = 10
COMMIT_EVERY_S = 0.1
#: ``reach`` and ``aim`` of the figures.
ONE_RECORD_ASKED = (3.0, 5.0)
THROUGHPUT_ASKED = (1.0, 1.5)

_WITH_COMMITS = f"commits after {COMMIT_EVERY_S * 1e3:.0f} ms, RF {BROKERS}"

#: Measures one side with a topic; a value for each figure.
Workload = Callable[[Side, str], Sequence[float]]


def beside_kafka(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, then three with three replicas."""
    found: list[Measured] = []
    with pair(1) as both:
        console.print("transactions: one record each, one broker")
        found += _measured(both, _one_record_figures(1), _one_record, scale)
    with pair(BROKERS) as both:
        workloads: list[tuple[str, Sequence[Figure], Workload]] = [
            ("one record each", _one_record_figures(BROKERS), _one_record),
            ("three partitions each", COMMIT_FIGURES, _three_partitions),
            (f"{PRODUCERS} producers", PRODUCERS_FIGURES, _producers),
        ]
        for size in VALUE_BYTES:
            workloads.append((f"values of {size} bytes", _sent_figures(size), _sent(scale, size)))
        for what, figures, workload in workloads:
            console.print(f"transactions: {what}")
            found += _measured(both, figures, workload, scale)
        for size in VALUE_BYTES:
            console.print(f"transactions: Java's perf tool, values of {size} bytes")
            with java_tools(both.folder) as tools:
                found += _measured(
                    both, _java_figures(size), _sent_by_java(scale, size, tools), scale
                )
    return found


def _measured(
    both: Pair, figures: Sequence[Figure], workload: Workload, scale: Scale
) -> list[Measured]:
    """One topic for each side; its partitions have leaders on all brokers."""
    with ExitStack() as stack:
        ours, kafka = [
            stack.enter_context(new_topic(side.bootstrap, PARTITIONS, both.count))
            for side in (both.ours, both.kafka)
        ]
        return take_turns(
            figures,
            lambda: workload(both.ours, ours),
            lambda: workload(both.kafka, kafka),
            scale.rounds,
        )


# small transactions


def _one_record_figures(brokers: int) -> tuple[Figure, Figure]:
    reach, aim = ONE_RECORD_ASKED
    key = f"transactions/one-record/{brokers}"
    return (
        Figure(
            key=key,
            what=f"librdkafka, transactions of one record one after the other, RF {brokers}",
            unit="a second",
            reach=reach,
            aim=aim,
            digits=0,
        ),
        Figure(
            key=f"{key}/cpu",
            what="CPU of all servers for one of them",
            unit="ms",
            less_is_better=True,
            digits=2,
        ),
    )


COMMIT_FIGURES = tuple(
    Figure(
        key=f"transactions/commit/{name}",
        what=f"commit of three records, in partitions of three brokers, RF {BROKERS}, {name}",
        unit="ms",
        less_is_better=True,
        digits=1,
    )
    for name in ("p50", "p99")
)
PRODUCERS_FIGURES = (
    Figure(
        key="transactions/producers",
        what=f"{PRODUCERS} producers of librdkafka at once, transactions of one record",
        unit="a second",
        digits=0,
    ),
    Figure(
        key="transactions/producers/cpu",
        what="CPU of all servers for one of them",
        unit="ms",
        less_is_better=True,
        digits=2,
    ),
)


def _one_record(side: Side, topic: str) -> tuple[float, float]:
    """Transactions a second, and milliseconds of the servers' CPU for one."""
    producer = transactional_producer(side.bootstrap)
    one_after_another(producer, topic, [0], TRANSACTIONS // 10)
    before = side.cpu_seconds()
    taken = one_after_another(producer, topic, [0], TRANSACTIONS)
    cpu_s = side.cpu_seconds() - before
    return len(taken) / sum(each.whole_s for each in taken), cpu_s / len(taken) * 1e3


def _three_partitions(side: Side, topic: str) -> tuple[float, float]:
    """The median and the 99th percentile of commits in ms."""
    producer = transactional_producer(side.bootstrap)
    partitions = range(BROKERS)
    one_after_another(producer, topic, partitions, TRANSACTIONS // 10)
    taken = [
        each.commit_s * 1e3 for each in one_after_another(producer, topic, partitions, TRANSACTIONS)
    ]
    return median(taken), quantiles(taken, n=100)[98]


def _producers(side: Side, topic: str) -> tuple[float, float]:
    """Transactions a second, and milliseconds of the servers' CPU for one, beginnings included."""
    before = side.cpu_seconds()
    speed = at_once(side.bootstrap, topic, PARTITIONS, PRODUCERS, EACH)
    return speed, (side.cpu_seconds() - before) / (PRODUCERS * (EACH + 1)) * 1e3


# large transactions


def _sent_figures(value_bytes: int) -> tuple[Figure, ...]:
    key = f"transactions/produce/librdkafka/{value_bytes}"
    what = f"values of {value_bytes} bytes"
    return (
        _throughput(key, f"librdkafka produces {what}, {_WITH_COMMITS}"),
        server_cpu(f"{key}/cpu"),
        Figure(
            key=f"{key}/idempotent",
            what=f"the same by an idempotent producer, acks=all, RF {BROKERS}",
            unit="MB/s",
        ),
        Figure(
            key=f"{key}/share",
            what="with transactions against without",
            unit="%",
            digits=0,
        ),
    )


def _sent(scale: Scale, value_bytes: int) -> Workload:
    messages = scale.messages * VALUE_BYTES[0] // value_bytes
    moved = messages * value_bytes

    def speed(side: Side, topic: str, commit_every_s: float | None) -> float:
        taken = transaction_load.produce(
            side.bootstrap,
            topic,
            PARTITIONS,
            messages=messages,
            value_bytes=value_bytes,
            commit_every_s=commit_every_s,
        )
        return moved / 1e6 / taken

    def run(side: Side, topic: str) -> tuple[float, ...]:
        without = speed(side, topic, None)
        before = side.cpu_seconds()
        transactional = speed(side, topic, COMMIT_EVERY_S)
        cpu = cpu_by_gigabyte(side, before, moved)
        return transactional, cpu, without, transactional / without * 100

    return run


def _java_figures(value_bytes: int) -> tuple[Figure, ...]:
    key = f"transactions/produce/Java/{value_bytes}"
    what = f"Java's perf tool produces values of {value_bytes} bytes, {_WITH_COMMITS}"
    return _throughput(key, what), server_cpu(f"{key}/cpu")


def _sent_by_java(scale: Scale, value_bytes: int, tools: object) -> Workload:
    messages = scale.messages * VALUE_BYTES[0] // value_bytes

    def run(side: Side, topic: str) -> tuple[float, float]:
        before = side.cpu_seconds()
        speed = perf_tool.produce(
            tools,
            side.bootstrap,
            topic,
            messages=messages,
            value_bytes=value_bytes,
            acks="all",
            commit_every_ms=int(COMMIT_EVERY_S * 1e3),
        )
        return speed, cpu_by_gigabyte(side, before, messages * value_bytes)

    return run


def _throughput(key: str, what: str) -> Figure:
    reach, aim = THROUGHPUT_ASKED
    return Figure(key=key, what=what, unit="MB/s", reach=reach, aim=aim)
