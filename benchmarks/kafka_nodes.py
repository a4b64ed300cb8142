"""Two clusters side by side: nodes of Apache Kafka, and the same number of sparklog's brokers.

Owns: their start and stop, the CPU and memory that they use, Kafka's tools and Spark's package for
Kafka.  Must not know the loads.  Kafka and the package are those of ``tests``: Maven fetches them
once.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from benchmarks.servers import cpu_seconds, resident_megabytes, serve

#: The heap that ``kafka-server-start.sh`` gives a broker.
HEAP = "1g"
#: The heap that ``kafka-producer-perf-test.sh`` gives its tool.
TOOL_HEAP = "512m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two clusters, with all processes of its servers, and the brokers among them."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    broker_pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def resident_megabytes(self) -> tuple[float, float]:
        """Resident memory in MB: of the brokers, and of all processes."""
        return (
            sum(map(resident_megabytes, self.broker_pids)),
            sum(map(resident_megabytes, self.pids)),
        )

    def with_children(self) -> "Side":
        """The side with the processes that its servers have started since."""
        started = {
            child.pid for pid in self.pids for child in psutil.Process(pid).children(recursive=True)
        }
        return replace(self, pids=(*self.pids, *started.difference(self.pids)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both clusters, with ``count`` servers each.  ``folder`` is deleted at their end."""

    ours: Side
    kafka: Side
    count: int
    folder: Path

    @property
    def brokers(self) -> str:
        """The number of brokers of each side, in words."""
        return "one broker" if self.count == 1 else f"{self.count} brokers"


@contextmanager
def pair(
    count: int,
    same: Mapping[str, str] = {},
    *,
    ours: Mapping[str, str] = {},
    kafkas: Mapping[str, str] = {},
    plugins: Sequence[Path] = (),
) -> Iterator[Pair]:
    """Run both kinds at the same time; only one has work at any time.

    They have their defaults, but for the settings that are the ``same`` on both sides, and those of
    one side alone: ``ours``, and ``kafkas``.  ``plugins`` are folders with further jars for Kafka.
    """
    replicas = str(count)
    own = {**same, **ours}
    options = [word for name, value in own.items() for word in ("--set", f"{name}={value}")]
    settings = {
        **same,
        **kafkas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
    }
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        kafka(
            (folder := Path(name)) / "kafka", count, heap=HEAP, settings=settings, plugins=plugins
        ) as theirs,
        serve(folder / "ours", count, *options) as served,
    ):
        nodes = tuple(theirs.pid(node) for node in theirs.nodes)
        yield Pair(
            ours=Side(
                name="sparklog",
                bootstrap=str(served.bootstrap),
                pids=(served.pid,),
                broker_pids=tuple(served.broker_pids()),
            ).with_children(),
            kafka=Side(
                name="Kafka",
                bootstrap=theirs.bootstrap,
                pids=nodes,
                broker_pids=nodes,
            ),
            count=count,
            folder=folder,
        )


@contextmanager
def kafka(
    folder: Path,
    count: int,
    *,
    heap: str | None = None,
    settings: Mapping[str, str] = {},
    plugins: Sequence[Path] = (),
) -> Iterator[Any]:
    """Run the ``KafkaCluster`` of ``tests/peers``.

    ``heap`` is in Java's notation, and by default the heap of the tests.  ``plugins`` are folders
    with further jars.
    """
    from tests.peers.kafka_cluster import JAVA_OPTIONS, KafkaCluster
    from tests.support.kafka_jars import kafka_jars

    memory = (f"-Xms{heap}", f"-Xmx{heap}") if heap else ()
    with KafkaCluster(
        kafka_jars(),
        folder,
        count,
        settings=settings,
        java_options=(*JAVA_OPTIONS, *memory),
        more_jars=plugins,
    ) as cluster:
        yield cluster


@contextmanager
def java_tools(folder: Path) -> Iterator[Any]:
    """Run the ``KafkaTools`` of ``tests/peers`` in one warm JVM, set up as Kafka does."""
    from tests.peers.kafka_cluster import JAVA_OPTIONS
    from tests.peers.kafka_tools import KafkaTools
    from tests.support.kafka_jars import kafka_jars

    options = (*JAVA_OPTIONS, f"-Xms{TOOL_HEAP}", f"-Xmx{TOOL_HEAP}")
    tools = KafkaTools(kafka_jars(), folder / "tool-errors", java_options=options)
    try:
        yield tools
    finally:
        tools.close()


def describe_peers() -> str:
    """Return the versions of the other side and of the clients."""
    from tests.support.kafka_jars import KAFKA

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60)
    return ", ".join([
        f"{KAFKA.name.replace('kafka-', 'Kafka ')} with a heap of {HEAP} a node",
        java.stderr.splitlines()[0].replace('"', ""),
        f"librdkafka {confluent_kafka.libversion()[0]}",
    ])  # fmt: skip


def peers_missing() -> str | None:
    """Return the reason why Kafka cannot be had here; None if it can."""
    from tests.support.kafka_jars import JarsUnavailableError, kafka_jars

    try:
        kafka_jars()
    except JarsUnavailableError as error:
        return str(error)
    return None


def spark_package() -> str:
    """Return the jars of Spark's Kafka source and sink, separated by commas."""
    from tests.support.kafka_jars import SPARK_PACKAGE, jars_of

    return ",".join(map(str, sorted(jars_of(SPARK_PACKAGE).glob("*.jar"))))
