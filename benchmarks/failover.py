"""The stall of producers when a broker fails, beside Apache Kafka's three nodes.

Owns: which broker is killed and how, and the order of a round.  Must not know how a stall is
measured.

A round: all replicas are in sync.  The broker that leads most partitions fails.  The stall is the
longest time in which one of its partitions gave no acknowledgement.  The broker comes back.  Kafka
has its default setup (each node is broker and controller), is killed in the same way and measured
by the same client.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psutil
from rich.console import Console

from benchmarks.harness import Row
from benchmarks.kafka_nodes import HEAP, kafka
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from benchmarks.servers import Served, serve
from benchmarks.stall import SteadyLoad, Topic

BROKERS = 3
KILLS = 20
EXECUTOR_KILLS = 10
HANGS = 5
#: Executors of one core each: three for one broker each, and one for queries.
MASTER = "local-cluster[4,1,1024]"
#: Quiet time before each failure, in seconds.
CALM_S = 1.0
DEATH_SECONDS_MAX = 30.0
SESSION_S = 9.0
#: ``reach`` and ``aim`` of the figures beside Kafka.
STALL_ASKED = (5.0, 10.0)
#: A client cannot tell a hanging broker from a slow broker; it has to look for new leaders itself.
ATTENTIVE = {"topic.metadata.refresh.interval.ms": 500}

Fault = Callable[["Target", int], None]


class Target(Protocol):
    """A cluster: of Kafka, or of sparklog."""

    bootstrap: str

    def pid(self, node_id: int) -> int:
        """The process id of a running broker."""

    def kill(self, node_id: int) -> None:
        """Kill a broker as the kernel's out-of-memory killer does."""

    def bring_back(self, node_id: int) -> None:
        """Start the broker again, if nothing else does."""


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    return [*process_kills(console), *executor_kills(console), *hangs(console)]


def beside_kafka(console: Console, scale: Scale) -> list[Measured]:
    """Run both clusters at once, and kill a broker of each in turns."""
    reach, aim = STALL_ASKED
    figure = Figure(
        key="failover/stall",
        what=f"producer stall when a leader is killed, acks=all, RF {BROKERS}, librdkafka",
        unit="s",
        less_is_better=True,
        reach=reach,
        aim=aim,
        digits=2,
    )
    with _kafka(HEAP) as theirs, _ours() as ours:
        topics = {id(target): Topic(target.bootstrap) for target in (ours, theirs)}

        def run(target: Target, name: str) -> tuple[float]:
            console.print(f"failover: {name}")
            with SteadyLoad(target.bootstrap) as load:
                return (_stall(target, topics[id(target)], load, _kill, console),)

        return take_turns(
            [figure],
            lambda: run(ours, "sparklog"),
            lambda: run(theirs, "Kafka"),
            scale.kills,
            warm=False,  # a round is long, and a real failover is not warmed up either
        )


def process_kills(console: Console, kills: int = KILLS) -> list[Row]:
    with _kafka() as target:
        base = _measure(target, _kill, kills, "Kafka, a leader is killed", console)
    with _ours() as target:
        ours = _measure(target, _kill, kills, "a leader is killed", console)
    return _rows("a leader's process is killed", ours, base, p50=1.0, worst=3.0)


def executor_kills(console: Console, kills: int = EXECUTOR_KILLS) -> list[Row]:
    with _ours("--master", MASTER, engine="spark") as target:
        ours = _measure(target, _kill_executor, kills, "a leader's executor is killed", console)
    return _rows("a leader's executor is killed", ours, None, p50=1.0, worst=3.0)


def hangs(console: Console, count: int = HANGS) -> list[Row]:
    with _kafka() as target:
        base = _measure(target, _hang, count, "Kafka, a leader hangs", console, ATTENTIVE)
    with _ours() as target:
        ours = _measure(target, _hang, count, "a leader hangs", console, ATTENTIVE)
    bound = SESSION_S + 1
    return _rows(
        "a leader hangs (a client that looks for leaders)", ours, base, p50=bound, worst=bound
    )


def _measure(
    target: Target,
    fault: Fault,
    rounds: int,
    what: str,
    console: Console,
    settings: Mapping[str, Any] = {},
) -> list[float]:
    """Return the stall of each round."""
    console.print(f"failover: {what}, {rounds} times")
    topic = Topic(target.bootstrap)
    stalls = []
    with SteadyLoad(target.bootstrap, settings) as load:
        for _ in range(rounds):
            stalls.append(_stall(target, topic, load, fault, console))
    return stalls


def _stall(target: Target, topic: Topic, load: SteadyLoad, fault: Fault, console: Console) -> float:
    """Return the stall of one round."""
    topic.await_whole()
    load.await_acks()
    time.sleep(CALM_S)
    load.forget()
    victim, partitions = max(topic.leaders().items(), key=lambda led: len(led[1]))
    pid, since = target.pid(victim), time.monotonic()
    fault(target, victim)
    _await_failure(pid)
    stall = load.stall(partitions, since, time.monotonic())
    console.print(f"  broker {victim} ({len(partitions)} led): {stall:.2f} s")
    if psutil.pid_exists(pid):
        os.kill(pid, signal.SIGCONT)
    target.bring_back(victim)
    if load.failures:
        raise RuntimeError(f"records were refused: {load.failures[:3]}")
    return stall


def _await_failure(pid: int) -> None:
    """Wait until the broker has ended; it outlives a killed executor by a moment."""
    end = time.monotonic() + DEATH_SECONDS_MAX
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.005)
    raise RuntimeError(f"process {pid} goes on")


def _kill(target: Target, node_id: int) -> None:
    target.kill(node_id)


def _hang(target: Target, node_id: int) -> None:
    os.kill(target.pid(node_id), signal.SIGSTOP)


def _kill_executor(target: Target, node_id: int) -> None:
    for above in psutil.Process(target.pid(node_id)).parents():
        if "--executor-id" in above.cmdline():
            above.kill()
            return
    raise RuntimeError(f"broker {node_id} runs in no executor")


def _rows(
    what: str, ours: list[float], base: list[float] | None, *, p50: float, worst: float
) -> list[Row]:
    found = []
    for name, figure, asked in (("p50", median, p50), ("worst", max, worst)):
        found.append(_row(f"producer stall, {what}, {name} of {len(ours)}", figure(ours), asked))
        if base is not None:
            found.append(_row(f"  the same, Kafka, {name} of {len(base)}", figure(base), None))
    return found


def _row(what: str, seconds: float, asked: float | None) -> Row:
    return Row(what=what, unit="s", ours=seconds, base=None, asked=asked, at_most=True, digits=2)


class _Ours:
    def __init__(self, served: Served, folder: Path) -> None:
        self.bootstrap = str(served.bootstrap)
        self._folder = folder

    def pid(self, node_id: int) -> int:
        """The process that holds the lock of the broker's log directory."""
        return int((self._folder / f"broker-{node_id}" / ".lock").read_text().split()[0])

    def kill(self, node_id: int) -> None:
        os.kill(self.pid(node_id), signal.SIGKILL)

    def bring_back(self, node_id: int) -> None:
        """Nothing to do: the supervisor or the launcher starts the broker again."""


@contextmanager
def _ours(*options: str, engine: str = "process") -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        folder = Path(name) / "data"
        with serve(folder, BROKERS, *options, engine=engine) as served:
            yield _Ours(served, folder)


@contextmanager
def _kafka(heap: str | None = None) -> Iterator[Target]:
    """Start three nodes.  ``heap`` is by default the heap of ``tests/peers``."""
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        kafka(Path(name) / "kafka", BROKERS, heap=heap) as cluster,
    ):
        yield cluster
