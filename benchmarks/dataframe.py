"""DataFrames against Arrow sources and sinks that do nothing, in one Spark session.

``python -m benchmarks.dataframe`` prints the table.  Both sides move rows of one 100-byte binary
value through PySpark's Arrow path, with the same number of tasks and of rows per batch.  Only the
end of that path differs.

Owns: the two jobs of each side.  Must not know how a row is shown.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness import Row, in_turns, report
from benchmarks.noop_source import NoopSource
from sparklog.cluster import Cluster, start
from sparklog.session import create_session
from sparklog.wire.records.columns_decode import GROUP_BYTES

BROKERS = 3
PARTITIONS = 6
VALUE_BYTES = 100
#: The size in a batch of a record with such a value.  It gives the rows of a reader's batches.
RECORD_BYTES = VALUE_BYTES + 9
ROWS = 2_000_000
ROUNDS = 7


def rows(console: Console) -> list[Row]:
    """Return the rows for reading and writing, as ratios to doing nothing with the same rows."""
    folder = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    spark = create_session(brokers=BROKERS, app_name="sparklog benchmark")
    try:
        spark.dataSource.register(NoopSource)
        with (
            start(spark, brokers=BROKERS, data_dir=folder) as cluster,
            console.status("DataFrames"),
        ):
            return [_write(spark, cluster), _read(spark, cluster)]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _write(spark: Any, cluster: Cluster) -> Row:
    frame = spark.range(0, ROWS, 1, 2).selectExpr(f"binary(repeat('v', {VALUE_BYTES})) AS value")

    def save(name: str, **options: str) -> None:
        frame.write.format(name).options(**options).mode("append").save()

    def ours() -> float:
        with _topic(cluster, "written"):
            return _per_second(lambda: save("sparklog", topic="written"))

    written, taken = in_turns(ours, lambda: _per_second(lambda: save("noop-arrow")), ROUNDS)
    return Row(
        what="DataFrame write / no-op Arrow sink",
        unit="M rows/s",
        ours=written,
        base=taken,
        asked=0.4,
    )


def _read(spark: Any, cluster: Cluster) -> Row:
    noop = {
        "rows": ROWS,
        "partitions": PARTITIONS,
        "batch": GROUP_BYTES // RECORD_BYTES,
        "size": VALUE_BYTES,
    }

    def load(name: str, **options: Any) -> None:
        spark.read.format(name).options(**options).load().write.format("noop").mode("append").save()

    with _topic(cluster, "read"):
        frame = spark.range(0, ROWS, 1, 2)
        frame.selectExpr(f"binary(repeat('v', {VALUE_BYTES})) AS value").write.format(
            "sparklog"
        ).option("topic", "read").mode("append").save()
        read, yielded = in_turns(
            lambda: _per_second(lambda: load("sparklog", subscribe="read")),
            lambda: _per_second(lambda: load("noop-arrow", **noop)),
            ROUNDS,
        )
    return Row(
        what="DataFrame read / no-op Arrow source",
        unit="M rows/s",
        ours=read,
        base=yielded,
        asked=0.5,
    )


@contextmanager
def _topic(cluster: Cluster, name: str) -> Iterator[None]:
    cluster.create_topic(name, PARTITIONS)
    try:
        yield
    finally:
        cluster.delete_topic(name)


def _per_second(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return ROWS / 1e6 / (time.perf_counter() - began)


if __name__ == "__main__":
    console = Console()
    report(rows(console), console)
