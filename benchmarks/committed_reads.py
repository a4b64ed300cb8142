"""DataFrame reads of committed data beside reads of all data, of the same topic.

Owns: the topics, and the queries.  Must not know how a row is shown.
"""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.harness import Row, in_turns, report
from benchmarks.librdkafka import new_topic
from benchmarks.servers import serve
from benchmarks.transaction_load import produce
from sparklog.cluster import connect
from sparklog.session import create_session

PARTITIONS: Final = 6
ROWS: Final = 5_000_000
VALUE_BYTES: Final = 100
COMMIT_EVERY_S: Final = 0.1
ROUNDS: Final = 9
#: Of the speed of reads of all data.
ASKED: Final = 0.95


def rows(console: Console) -> list[Row]:
    """Return reads with the default, read_committed, against read_uncommitted."""
    spark = create_session("local[2]", app_name="sparklog benchmark")
    found = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
            serve(Path(name) / "data", 1) as served,
            connect(spark, str(served.bootstrap)),
        ):
            bootstrap = str(served.bootstrap)
            for what, commit_every_s, abort_every in (
                ("without transactions", None, None),
                ("in transactions of 100 ms", COMMIT_EVERY_S, None),
                ("in such transactions, a fifth of them aborted", COMMIT_EVERY_S, 5),
            ):
                console.print(f"committed reads: {ROWS:,} records {what}")
                with new_topic(bootstrap, PARTITIONS, 1) as topic:
                    produce(
                        bootstrap,
                        topic,
                        PARTITIONS,
                        messages=ROWS,
                        value_bytes=VALUE_BYTES,
                        commit_every_s=commit_every_s,
                        abort_every=abort_every,
                    )
                    found.append(_reads(spark, bootstrap, topic, what))
    finally:
        spark.stop()
    return found


def _reads(spark: Any, bootstrap: str, topic: str, what: str) -> Row:
    committed, everything = in_turns(
        lambda: _read(spark, bootstrap, topic, "read_committed"),
        lambda: _read(spark, bootstrap, topic, "read_uncommitted"),
        ROUNDS,
    )
    return Row(
        what=f"DataFrame read of committed data / of all data, records {what}",
        unit="M records/s",
        ours=committed,
        base=everything,
        asked=ASKED,
    )


def _read(spark: Any, bootstrap: str, topic: str, isolation: str) -> float:
    """Return the millions of the topic's records a second, those included that are left out."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": isolation,
    }
    began = time.perf_counter()
    frame = spark.read.format("sparklog").options(**options).load()
    frame.selectExpr("sum(length(value))").collect()
    return ROWS / 1e6 / (time.perf_counter() - began)


if __name__ == "__main__":
    console = Console()
    report(rows(console), console)
