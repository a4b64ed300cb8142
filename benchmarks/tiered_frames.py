"""DataFrame reads of history in a bucket beside the same records on the broker's disk.

Owns: the topics, and the queries.  Must not know how tasks find the bucket, or what they ask it.

What an hour costs is counted by the bucket's process: the bytes that it has sent.
"""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console

from benchmarks.harness import Row, in_turns, report
from benchmarks.librdkafka import create_topic
from benchmarks.servers import serve
from benchmarks.tiering import LOCAL_BYTES, OPTIONS, TIERED, await_copies, bucket
from sparklog.cli.topics import with_admin
from sparklog.cluster import connect
from sparklog.session import create_session
from sparklog.types import CONTROLLER_NODE_ID

PARTITIONS: Final = 6
ROWS: Final = 10_000_000
VALUE_BYTES: Final = 100
ROUNDS: Final = 5
HOURS: Final = 24
START_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
#: The share of the records that is on the disk only, and so comes from the broker, at most.
LOCAL_SHARE: Final = 0.15


def rows(console: Console) -> list[Row]:
    """Return reads of a tiered topic against those of a topic on the disk, and an hour's bytes."""
    spark = create_session("local[2]", app_name="sparklog benchmark")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
            bucket(Path(name)) as server,
            serve(Path(name) / "data", 1, *OPTIONS) as served,
            connect(spark, str(served.bootstrap)),
        ):
            bootstrap = str(served.bootstrap)
            local_bytes = LOCAL_BYTES // PARTITIONS
            small = {**TIERED, "local.retention.bytes": str(local_bytes)}
            for topic, configs in (("plain", {}), ("tiered", small)):
                console.print(f"tiered frames: {ROWS:,} records into the {topic} topic")
                create_topic(bootstrap, topic, PARTITIONS, 1, {**configs, "retention.ms": "-1"})
                _write(spark, bootstrap, topic)
            for number in range(PARTITIONS):
                await_copies(Path(name) / "data", "tiered", number, local_bytes=local_bytes)
            console.print("tiered frames: read")
            tiered, plain = in_turns(
                lambda: _read(spark, bootstrap, "tiered"),
                lambda: _read(spark, bootstrap, "plain"),
                ROUNDS,
            )
            broker_before = _broker_bytes(bootstrap)
            whole = _sent_bytes(server, lambda: _read(spark, bootstrap, "tiered"))
            from_broker = _broker_bytes(bootstrap) - broker_before
            hour = _sent_bytes(server, lambda: _read_an_hour(spark, bootstrap, "tiered"))
            return [
                Row(
                    what=f"DataFrame read of {ROWS:,} records, from the bucket / from the disk",
                    unit="M records/s",
                    ours=tiered,
                    base=plain,
                    asked=0.8,
                ),
                Row(
                    what="bytes that the broker sends for a read of all / that the bucket sends",
                    unit="MB",
                    ours=from_broker / 1e6,
                    base=whole / 1e6,
                    asked=LOCAL_SHARE,
                    at_most=True,
                ),
                Row(
                    what=f"bytes of one hour of {HOURS} / a share of 1/{HOURS} of all bytes",
                    unit="MB",
                    ours=hour / 1e6,
                    base=whole / HOURS / 1e6,
                    asked=2.0,
                    at_most=True,
                ),
            ]
    finally:
        spark.stop()


def _write(spark: Any, bootstrap: str, topic: str) -> None:
    """A day in the order of time, spread over the partitions."""
    step = HOURS * HOUR_MS / ROWS
    spark.range(0, ROWS, 1, 1).selectExpr(
        f"int(id % {PARTITIONS}) AS partition",
        f"timestamp_millis({START_MS} + bigint(id * {step})) AS timestamp",
        f"binary(rpad(string(xxhash64(id)), {VALUE_BYTES}, string(xxhash64(id + 1)))) AS value",
    ).write.format("sparklog").options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": topic}
    ).mode("append").save()


def _frame(spark: Any, bootstrap: str, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    return spark.read.format("sparklog").options(**options).load()


def _read(spark: Any, bootstrap: str, topic: str) -> float:
    """Return the millions of records a second."""
    began = time.perf_counter()
    [(records, size)] = (
        _frame(spark, bootstrap, topic).selectExpr("count(*)", "sum(length(value))").collect()
    )
    assert (records, size) == (ROWS, ROWS * VALUE_BYTES), (records, size)
    return ROWS / 1e6 / (time.perf_counter() - began)


def _read_an_hour(spark: Any, bootstrap: str, topic: str) -> None:
    first, end = (f"timestamp_millis({START_MS + hour * HOUR_MS})" for hour in (9, 10))
    frame = _frame(spark, bootstrap, topic).where(f"timestamp >= {first} AND timestamp < {end}")
    [(records, _)] = frame.selectExpr("count(*)", "sum(length(value))").collect()
    assert abs(records - ROWS / HOURS) <= PARTITIONS, records


def _broker_bytes(bootstrap: str) -> int:
    """The bytes that all brokers have sent so far, to whomever."""
    found = with_admin(bootstrap, lambda admin: admin.status())
    brokers = found.keys() - {CONTROLLER_NODE_ID}
    return sum(found[node_id]["wire_bytes_out"] for node_id in brokers)


def _sent_bytes(server: psutil.Process, read: Any) -> int:
    """The bytes that the bucket's process has written while ``read`` ran."""
    before = server.io_counters().write_chars
    read()
    return int(server.io_counters().write_chars - before)


if __name__ == "__main__":
    console = Console()
    report(rows(console), console)
