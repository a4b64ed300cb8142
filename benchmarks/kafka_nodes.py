"""Two clusters side by side: Apache Kafka's nodes, and as many brokers of ours.

Owns: starting and stopping them, what each uses of the machine, and Spark's package for Kafka.
Must not know the loads.  Kafka and the package are those of ``tests``: fetched once, by Maven.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.servers import cpu_seconds, resident_megabytes, serve

_TESTS = Path(__file__).resolve().parents[1] / "tests"
#: What ``kafka-server-start.sh`` gives a broker.
HEAP = "1g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, with every process of its servers."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def resident_megabytes(self) -> float:
        return sum(map(resident_megabytes, self.pids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both; ``count`` servers each."""

    ours: Side
    kafka: Side
    count: int


@contextmanager
def pair(folder: Path, count: int) -> Iterator[Pair]:
    """Both kinds with their defaults, at the same time: only one of them has work at any time."""
    replicas = str(count)
    settings = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
    }
    with (
        kafka(folder / "kafka", count, heap=HEAP, settings=settings) as theirs,
        serve(folder / "ours", count) as served,
    ):
        process = psutil.Process(served.pid)
        yield Pair(
            ours=Side(
                name="sparklog",
                bootstrap=str(served.bootstrap),
                pids=tuple(each.pid for each in (process, *process.children(recursive=True))),
            ),
            kafka=Side(
                name="Kafka",
                bootstrap=theirs.bootstrap,
                pids=tuple(theirs.pid(node) for node in theirs.nodes),
            ),
            count=count,
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


def spark_package() -> str:
    """The jars of Spark's Kafka source and sink, separated by commas."""
    _find_tests()
    from kafka_jars import SPARK_PACKAGE, jars_of

    return ",".join(map(str, sorted(jars_of(SPARK_PACKAGE).glob("*.jar"))))


def _find_tests() -> None:
    sys.path += [str(path) for path in (_TESTS, _TESTS / "peers") if str(path) not in sys.path]
