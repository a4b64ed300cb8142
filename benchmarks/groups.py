"""Consumer groups: consuming, commits, heartbeats and rebalances, also beside Kafka in turns.

Owns: the workloads and their figures.  Must not know which requests members send.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from rich.console import Console

from benchmarks.group_load import CommitLoad, find_coordinator, heartbeating, rebalance
from benchmarks.harness import Row
from benchmarks.kafka_clients import CONSUME_ASKED, VALUE_BYTES, cpu_by_gigabyte, server_cpu
from benchmarks.kafka_nodes import Pair, Side, pair
from benchmarks.librdkafka import consume_with_group, create_topic, new_topic, produce
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from benchmarks.servers import cpu_seconds, serve
from sparklog.types import Endpoint

#: The same on both sides; one partition of the internal topic is one coordinator.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
OPTIONS = tuple(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}"))

PARTITIONS = 6
COMMITS = 10_000
COMMIT_CONNECTIONS = 8
MEMBERS = 1000
GROUPS = 20
HEARTBEATS_S = 12.0
REBALANCED = (50, 100)
REBALANCED_WORDS = f"rebalance of {REBALANCED[0]} members on {REBALANCED[1]} partitions"
FIRST_BROKERS = 3
FIRST_WORDS = f"first coordinator of a new cluster of {FIRST_BROKERS} brokers, found and loaded"
#: What is asked of our side alone.
FIRST_ASKED_S = 1
COMMITS_ASKED = 10_000
HEARTBEATS_ASKED = 5
REBALANCE_ASKED_S = 2

#: Measures one side; a value for each figure.
Workload = Callable[[Side], Sequence[float]]

_TOPIC = "bench-groups"
_numbers = count()


def rows(console: Console) -> list[Row]:
    """Return the rows of our side alone."""
    first = _first_coordinator()
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        serve(Path(name) / "data", 1, *OPTIONS) as served,
    ):
        pids = tuple(served.broker_pids())
        side = Side(name="sparklog", bootstrap=str(served.bootstrap), pids=pids, broker_pids=pids)
        create_topic(side.bootstrap, _TOPIC, REBALANCED[1], 1)
        console.print("groups: commits, heartbeats and a rebalance")
        _commits(side)
        commits, commit_us = _commits(side)
        (heartbeats,) = _heartbeats(side)
        (settled,) = _rebalance(side)
    members = f"{MEMBERS:,} heartbeating members"
    return [
        _row(FIRST_WORDS, "s", first, FIRST_ASKED_S, at_most=True),
        _row("offset commits through one coordinator", "a second", commits, COMMITS_ASKED),
        _row("CPU of the broker for one", "us", commit_us, None, at_most=True),
        _row(members, "% of a core", heartbeats, HEARTBEATS_ASKED, at_most=True),
        _row(REBALANCED_WORDS, "s", settled, REBALANCE_ASKED_S, at_most=True),
    ]


def beside_kafka(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each."""
    found: list[Measured] = []
    with pair(1, SETTINGS) as both, _topics(both):
        console.print("groups: consume")
        found += _consumed(both, scale)
        workloads: tuple[tuple[str, tuple[Figure, ...], Workload], ...] = (
            ("commits", COMMIT_FIGURES, _commits),
            ("heartbeats", HEARTBEAT_FIGURES, _heartbeats),
            ("rebalance", REBALANCE_FIGURES, _rebalance),
        )
        for what, figures, run in workloads:
            console.print(f"groups: {what}")
            found += take_turns(
                figures, partial(run, both.ours), partial(run, both.kafka), scale.rounds
            )
    return found


COMMIT_FIGURES = (
    Figure(
        key="groups/commits",
        what=f"offset commits of one partition, one coordinator, {COMMIT_CONNECTIONS} connections",
        unit="a second",
        reach=1.0,
        digits=0,
    ),
    Figure(
        key="groups/commits/cpu", what="CPU of the broker for one", unit="us", less_is_better=True
    ),
)
HEARTBEAT_FIGURES = (
    Figure(
        key="groups/heartbeats",
        what=f"CPU of the broker with {MEMBERS:,} members that send a heartbeat every 3 s",
        unit="% of a core",
        less_is_better=True,
    ),
)
REBALANCE_FIGURES = (
    Figure(
        key="groups/rebalance",
        what=f"{REBALANCED_WORDS}, after the last join",
        unit="s",
        less_is_better=True,
        digits=2,
    ),
)


def _consumed(both: Pair, scale: Scale) -> list[Measured]:
    size = VALUE_BYTES[0]
    reach, aim = CONSUME_ASKED
    figures = (
        Figure(
            key="groups/consume",
            what=f"librdkafka consumes values of {size} bytes, with a group",
            unit="MB/s",
            reach=reach,
            aim=aim,
        ),
        server_cpu("groups/consume/cpu"),
    )
    moved = scale.messages * size

    def run(side: Side, topic: str) -> tuple[float, float]:
        before = side.cpu_seconds()
        group = f"consume-{next(_numbers)}"
        taken = consume_with_group(side.bootstrap, topic, group, messages=scale.messages)
        return moved / 1e6 / taken, cpu_by_gigabyte(side, before, moved)

    with (
        new_topic(both.ours.bootstrap, PARTITIONS, 1) as ours,
        new_topic(both.kafka.bootstrap, PARTITIONS, 1) as theirs,
    ):
        for side, topic in ((both.ours, ours), (both.kafka, theirs)):
            produce(
                side.bootstrap, topic, PARTITIONS, messages=scale.messages, value_bytes=size, acks=1
            )
        return take_turns(
            figures, lambda: run(both.ours, ours), lambda: run(both.kafka, theirs), scale.rounds
        )


def _first_coordinator() -> float:
    """Seconds of the first search for a coordinator, which has ``__consumer_offsets`` created."""
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        serve(Path(name) / "data", FIRST_BROKERS) as served,
    ):
        began = time.monotonic()
        asyncio.run(find_coordinator(served.bootstrap, "first"))
        return time.monotonic() - began


def _commits(side: Side) -> tuple[float, float]:
    """Commits per second, and microseconds of the broker's CPU for one."""
    coordinator = asyncio.run(find_coordinator(Endpoint.parse(side.bootstrap), "commits-0"))
    load = CommitLoad(coordinator, _TOPIC, COMMIT_CONNECTIONS)
    before = _broker_cpu(side)
    taken = load.run(COMMITS)
    return COMMITS / taken, (_broker_cpu(side) - before) / COMMITS * 1e6


def _heartbeats(side: Side) -> tuple[float]:
    """The share of a core that the broker uses, in percent."""
    number = next(_numbers)

    async def run() -> float:
        groups = [f"heartbeats-{number}-{group}" for group in range(GROUPS)]
        async with heartbeating(Endpoint.parse(side.bootstrap), groups, MEMBERS):
            await asyncio.sleep(HEARTBEATS_S / 2)
            before, began = _broker_cpu(side), time.monotonic()
            await asyncio.sleep(HEARTBEATS_S)
            return (_broker_cpu(side) - before) / (time.monotonic() - began) * 100

    return (asyncio.run(run()),)


def _rebalance(side: Side) -> tuple[float]:
    group = f"rebalance-{next(_numbers)}"
    return (asyncio.run(rebalance(Endpoint.parse(side.bootstrap), group, _TOPIC, REBALANCED)),)


def _broker_cpu(side: Side) -> float:
    return sum(map(cpu_seconds, side.broker_pids))


@contextmanager
def _topics(both: Pair) -> Iterator[None]:
    for side in (both.ours, both.kafka):
        create_topic(side.bootstrap, _TOPIC, REBALANCED[1], 1)
    yield


def _row(what: str, unit: str, figure: float, asked: float | None, *, at_most: bool = False) -> Row:
    return Row(what=what, unit=unit, ours=figure, base=None, asked=asked, at_most=at_most)
