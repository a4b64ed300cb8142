"""Two clusters side by side: Apache Kafka's nodes, and as many brokers of ours.

Owns: starting and stopping them, what each uses of the machine, Kafka's tools and Spark's package.
Must not know the loads.  Kafka and the package are those of ``tests``: fetched once, by Maven.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from benchmarks.servers import cpu_seconds, resident_megabytes, serve

_TESTS = Path(__file__).resolve().parents[1] / "tests"
#: What ``kafka-server-start.sh`` gives a broker.
HEAP = "1g"
#: And ``kafka-producer-perf-test.sh`` its tool.
TOOL_HEAP = "512m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, with every process of its servers, and those of them that are brokers."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    broker_pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def resident_megabytes(self) -> tuple[float, float]:
        """Of the brokers, and of all processes."""
        return (
            sum(map(resident_megabytes, self.broker_pids)),
            sum(map(resident_megabytes, self.pids)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both; ``count`` servers each.  ``folder`` goes when they do."""

    ours: Side
    kafka: Side
    count: int
    folder: Path

    @property
    def brokers(self) -> str:
        """How many there are of each, in words."""
        return "one broker" if self.count == 1 else f"{self.count} brokers"


@contextmanager
def pair(count: int) -> Iterator[Pair]:
    """Both kinds with their defaults, at the same time: only one of them has work at any time."""
    replicas = str(count)
    settings = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
    }
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        kafka((folder := Path(name)) / "kafka", count, heap=HEAP, settings=settings) as theirs,
        serve(folder / "ours", count) as served,
    ):
        process = psutil.Process(served.pid)
        nodes = tuple(theirs.pid(node) for node in theirs.nodes)
        yield Pair(
            ours=Side(
                name="sparklog",
                bootstrap=str(served.bootstrap),
                pids=tuple(each.pid for each in (process, *process.children(recursive=True))),
                broker_pids=tuple(served.broker_pids()),
            ),
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
    folder: Path, count: int, *, heap: str | None = None, settings: Mapping[str, str] = {}
) -> Iterator[Any]:
    """The ``KafkaCluster`` of ``tests/peers``; ``heap`` as Java writes it, else that of tests."""
    _find_tests()
    from kafka_cluster import JAVA_OPTIONS, KafkaCluster
    from kafka_jars import kafka_jars

    memory = (f"-Xms{heap}", f"-Xmx{heap}") if heap else ()
    with KafkaCluster(
        kafka_jars(), folder, count, settings=settings, java_options=(*JAVA_OPTIONS, *memory)
    ) as cluster:
        yield cluster


@contextmanager
def java_tools(folder: Path) -> Iterator[Any]:
    """The ``KafkaTools`` of ``tests/peers``, in one JVM that stays warm, as Kafka sets it up."""
    _find_tests()
    from kafka_cluster import JAVA_OPTIONS
    from kafka_jars import kafka_jars
    from kafka_tools import KafkaTools

    options = (*JAVA_OPTIONS, f"-Xms{TOOL_HEAP}", f"-Xmx{TOOL_HEAP}")
    tools = KafkaTools(kafka_jars(), folder / "tool-errors", java_options=options)
    try:
        yield tools
    finally:
        tools.close()


def describe_peers() -> str:
    """Versions of what we are measured beside and by."""
    _find_tests()
    from kafka_jars import KAFKA

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60)
    return ", ".join([
        f"{KAFKA.name.replace('kafka-', 'Kafka ')} with a heap of {HEAP} a node",
        java.stderr.splitlines()[0].replace('"', ""),
        f"librdkafka {confluent_kafka.libversion()[0]}",
    ])  # fmt: skip


def peers_missing() -> str | None:
    """Why Kafka cannot be had here, if it cannot."""
    _find_tests()
    from kafka_jars import JarsUnavailableError, kafka_jars

    try:
        kafka_jars()
    except JarsUnavailableError as error:
        return str(error)
    return None


def spark_package() -> str:
    """The jars of Spark's Kafka source and sink, separated by commas."""
    _find_tests()
    from kafka_jars import SPARK_PACKAGE, jars_of

    return ",".join(map(str, sorted(jars_of(SPARK_PACKAGE).glob("*.jar"))))


def _find_tests() -> None:
    sys.path += [str(path) for path in (_TESTS, _TESTS / "peers") if str(path) not in sys.path]
