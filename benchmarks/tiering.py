"""A tiered topic beside a topic that is not, in one cluster with a bucket on the same machine.

Owns: the workloads and their figures.  Must not know how clients work, or what a broker does.

The bucket is versitygw.  The history is larger than the cache on the broker's disk and is read from
its start to its end, so all of it comes from the bucket each time.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.harness import Row, in_turns
from benchmarks.librdkafka import consume, create_topic, latencies, produce
from benchmarks.servers import resident_megabytes, serve

VALUE_BYTES = 1000
MESSAGES = 400_000
ROUNDS = 3
#: Of producing: a round takes two seconds, and one alone may be a fifth off.
PRODUCE_ROUNDS = 9
#: Messages of the history that is read.
HISTORY = 4 * MESSAGES
#: Of the reads of history: the first ones are slow on both sides, in memory that is fresh.
READ_ROUNDS = 9
#: Messages a second, and seconds, of the measurement of latencies.
RATE, SECONDS = 2_000, 10.0
#: Bytes of a tiered log on the disk.
LOCAL_BYTES = 32 * 1024 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024
#: A quarter of the default, and a sixth of the history.
CACHE_BYTES = 256 * 1024 * 1024
PATIENCE_S = 300.0

#: Segments are copied, and leave the disk, soon.
SOON = {
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
    "log.segment.bytes": str(SEGMENT_BYTES),
}
SETTINGS = {**SOON, "remote.dir": "s3://bucket/log", "remote.cache.bytes": str(CACHE_BYTES)}
OPTIONS = [word for each in SETTINGS.items() for word in ("--set", "=".join(each))]
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": str(LOCAL_BYTES)}

_numbers = count()


def rows(console: Console) -> list[Row]:
    """Return the rows of one broker."""
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        bucket(Path(name)),
        serve(Path(name) / "data", 1, *OPTIONS) as served,
    ):
        bootstrap, data = str(served.bootstrap), Path(name) / "data"
        console.print("tiering: read history")
        old, tiered_old = _history(bootstrap, {}), _history(bootstrap, TIERED)
        await_copies(data, tiered_old)
        consumed = in_turns(
            lambda: _consumed(bootstrap, tiered_old, HISTORY),
            lambda: _consumed(bootstrap, old, HISTORY),
            READ_ROUNDS,
        )
        console.print("tiering: produce")
        plain, tiered = _topic(bootstrap, {}), _topic(bootstrap, TIERED)
        produced = in_turns(
            lambda: _produced_and_copied(bootstrap, tiered, data),
            lambda: _produced(bootstrap, plain),
            PRODUCE_ROUNDS,
        )
        console.print("tiering: latencies while segments are copied")
        late = in_turns(
            lambda: _p99_ms(bootstrap, TIERED, data),
            lambda: _p99_ms(bootstrap, {}),
            ROUNDS,
        )
        (pid,) = served.broker_pids()
        return [
            _row("librdkafka produces to a tiered topic", "MB/s", produced, 0.9),
            _row("p99 of a record's way while segments are copied", "ms", late, 2, at_most=True),
            _row("librdkafka consumes history from the bucket", "MB/s", consumed, 0.5),
            Row(
                what="the broker's memory afterwards",
                unit="MB",
                ours=resident_megabytes(pid),
                base=None,
                asked=80,
                at_most=True,
            ),
        ]


def _row(
    what: str, unit: str, figures: tuple[float, float], asked: float, *, at_most: bool = False
) -> Row:
    ours, base = figures
    return Row(what=what, unit=unit, ours=ours, base=base, asked=asked, at_most=at_most)


def _produced(bootstrap: str, topic: str) -> float:
    """Megabytes a second."""
    taken = produce(bootstrap, topic, 1, messages=MESSAGES, value_bytes=VALUE_BYTES, acks=-1)
    return MESSAGES * VALUE_BYTES / taken / 1e6


def _produced_and_copied(bootstrap: str, topic: str, data: Path) -> float:
    """Megabytes a second; the rest is copied afterwards, so that the base has nothing beside it."""
    figure = _produced(bootstrap, topic)
    await_copies(data, topic)
    return figure


def _p99_ms(bootstrap: str, configs: dict[str, str], data: Path | None = None) -> float:
    """The 99th percentile while the segments of another topic of that kind are copied.

    With ``data``, the folder of the brokers' files, it waits for the rest of the copies.
    """
    beside = _topic(bootstrap, configs)
    produce(bootstrap, beside, 1, messages=MESSAGES, value_bytes=VALUE_BYTES, acks=-1)
    found = latencies(bootstrap, _topic(bootstrap, configs), 1, rate=RATE, seconds=SECONDS)
    if data is not None:
        await_copies(data, beside)
    return statistics.quantiles(found, n=100)[98]


def _consumed(bootstrap: str, topic: str, messages: int) -> float:
    """Megabytes a second."""
    taken = consume(bootstrap, topic, 1, messages=messages)
    return messages * VALUE_BYTES / taken / 1e6


def _history(bootstrap: str, configs: dict[str, str]) -> str:
    """The name of a new topic with HISTORY records, and one before them."""
    topic = _topic(bootstrap, configs)
    produce(bootstrap, topic, 1, messages=HISTORY, value_bytes=VALUE_BYTES, acks=-1)
    return topic


def _topic(bootstrap: str, configs: dict[str, str]) -> str:
    """The name of a new topic with one record."""
    name = f"tiering-{next(_numbers)}"
    create_topic(bootstrap, name, 1, 1, configs)
    produce(bootstrap, name, 1, messages=1, value_bytes=1, acks=-1)
    return name


def await_copies(
    data: Path, topic: str, partition: int = 0, *, local_bytes: int = LOCAL_BYTES
) -> None:
    """Wait until all but the last segments of a partition are in the bucket only."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(_size, data.rglob(f"{topic}-{partition}/*.log"))) > local_bytes + SEGMENT_BYTES:
        assert time.monotonic() < deadline, "the segments are not in the bucket"
        time.sleep(0.2)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # deleted meanwhile


@contextmanager
def bucket(folder: Path) -> Iterator[psutil.Process]:
    """A bucket that this process and its children find through their environment; its server."""
    from tests.support.s3_server import S3Server, require_binary

    server = S3Server(require_binary(), folder / "s3")
    server.make_bucket("bucket")
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        yield psutil.Process(server.process.pid)
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
