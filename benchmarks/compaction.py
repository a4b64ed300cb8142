"""Compaction beside Kafka's log cleaner: speed, memory, and what producers notice of it.

Owns: the log that is cleaned, the moment at which a cleaning begins and ends, and the figures.
Must not know how a server is started.

Both brokers have one cleaner thread and get the same batches into a topic that is not compacted.
A cleaning begins with the change of ``cleanup.policy``, and ends when the file of clean offsets
names the active segment.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Self

import numpy as np
import psutil
import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

from benchmarks.kafka_nodes import Side, pair
from benchmarks.librdkafka import create_topic, delete_topic, new_topic
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from sparklog.client.blocking import BlockingClient
from sparklog.types import TopicPartition
from sparklog.wire.records.columns import encode_columns

RECORD_BYTES = 100
#: A key for so many records.
RECORDS_OF_A_KEY = 10
BATCH_BYTES = 64 * 1024
ROWS_AT_ONCE = 100_000
SEGMENT_MS: Final = 60_000
CONFIG: Final = {
    "segment.bytes": str(100 << 20),
    "segment.ms": str(SEGMENT_MS),
    "retention.ms": "-1",
    "min.cleanable.dirty.ratio": "0",
}
BACKOFF_MS = 100
#: A produce request is sent so often while a cleaning runs, and before.
RATE = 200
QUIET_S = 5.0
LOOK_S = 0.02
PATIENCE_S = 1800.0
_KEY_BYTES, _VALUE_BYTES = 8, 84
_numbers = count()


def beside_kafka(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, in turns.  ``scale.rows`` are the records of the log."""
    with pair(1) as both:
        for side in (both.ours, both.kafka):
            _alter(side, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": str(BACKOFF_MS)})
        bench = _Bench(scale.rows, console)
        return take_turns(
            _figures(scale.rows),
            lambda: bench.run(both.ours, both.folder / "ours" / "broker-1"),
            lambda: bench.run(both.kafka, both.folder / "kafka" / "node-1" / "logs"),
            scale.long_rounds,
            warm=False,
        )


def _figures(rows: int) -> Sequence[Figure]:
    log = f"{rows:,} records of {RECORD_BYTES} bytes, {rows // RECORDS_OF_A_KEY:,} keys"
    return (
        Figure(key="compaction/speed", what=f"{log}: compacted", unit="MB/s", reach=1),
        Figure(
            key="compaction/cpu",
            what="CPU of the broker and its cleaner for it",
            unit="s/GB",
            less_is_better=True,
            digits=2,
        ),
        Figure(
            key="compaction/memory",
            what="peak resident memory of the broker process meanwhile",
            unit="MB",
            less_is_better=True,
            digits=0,
        ),
        Figure(
            key="compaction/child",
            what="peak resident memory of the broker and its children",
            unit="MB",
            less_is_better=True,
            digits=0,
        ),
        Figure(
            key="compaction/quiet-p99",
            what=f"produce, {RATE} records/s, acks=all, p99 before the cleaning",
            unit="ms",
            less_is_better=True,
            digits=2,
        ),
        Figure(
            key="compaction/p99",
            what="the same during the cleaning",
            unit="ms",
            less_is_better=True,
            digits=2,
        ),
        Figure(
            key="compaction/p99-ratio",
            what="during the cleaning against before",
            unit="times",
            less_is_better=True,
            digits=2,
        ),
    )


class _Bench:
    def __init__(self, rows: int, console: Console) -> None:
        self._rows = rows
        self._console = console

    def run(self, side: Side, log_dir: Path) -> tuple[float, ...]:
        """Fill a topic, and let it be cleaned."""
        topic = f"compacted-{next(_numbers)}"
        create_topic(side.bootstrap, topic, 1, 1, CONFIG)
        size = _fill(side.bootstrap, topic, self._rows)
        partition_dir = log_dir / f"{topic}-0"
        (broker,) = side.broker_pids
        with new_topic(side.bootstrap, 1, 1) as other, _Pace(side.bootstrap, other) as pace:
            time.sleep(QUIET_S)
            quiet = pace.take_p99()
            with _Watch(broker) as watch:
                before, began = _cpu_seconds(broker), time.perf_counter()
                _alter(side, ResourceType.TOPIC, topic, {"cleanup.policy": "compact"})
                _await_clean(partition_dir)
                taken = time.perf_counter() - began
                cpu = _cpu_seconds(broker) - before
            during = pace.take_p99()
        delete_topic(side.bootstrap, topic)
        peak, with_children = watch.peaks
        found = (size / 1e6 / taken, cpu / size * 1e9, peak, with_children, quiet, during)
        self._console.print(f"{side.name}: {taken:.1f} s, {cpu:.1f} s of CPU, p99 {during:.2f} ms")
        return (*found, during / quiet)


def _fill(bootstrap: str, topic: str, rows: int) -> int:
    """Produce the records, with keys in no order; return their bytes.  The last batch rolls."""
    chance = np.random.default_rng(1)
    now_ms, size = time.time_ns() // 1_000_000, 0
    tp = TopicPartition(topic, 0)
    with BlockingClient(bootstrap, client_id="bench", timeout_s=300) as client:
        for first in range(0, rows, ROWS_AT_ONCE):
            numbers = chance.integers(0, rows // RECORDS_OF_A_KEY, min(ROWS_AT_ONCE, rows - first))
            keys = pa.array([b"%0*d" % (_KEY_BYTES, number) for number in numbers.tolist()])
            values = pa.array([b"%0*d" % (_VALUE_BYTES, first)] * len(numbers))
            batches = encode_columns(
                keys, values, default_timestamp=now_ms, target_batch_bytes=BATCH_BYTES
            )
            for batch in batches:
                client.produce(tp, list(batch.parts), acks=1)
                size += batch.size
        # A batch that is so much later begins a segment.
        last = encode_columns(
            pa.array([b"last"]), pa.array([b""]), default_timestamp=now_ms + 2 * SEGMENT_MS
        )
        client.produce(tp, list(last[0].parts), acks=-1)
    return size


def _await_clean(partition_dir: Path) -> None:
    from tests.peers.cleaned_logs import active_base, clean_offset

    active, deadline = active_base(partition_dir), time.monotonic() + PATIENCE_S
    while clean_offset(partition_dir) < active:
        assert time.monotonic() < deadline, f"{partition_dir} is not clean"
        time.sleep(LOOK_S)


def _alter(side: Side, kind: ResourceType, name: str, changes: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 4})
    admin.incremental_alter_configs([resource])[resource].result(60)


def _cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process and of its children that have ended."""
    return float(sum(psutil.Process(pid).cpu_times()[:4]))


class _Watch(threading.Thread):
    """Looks at the resident memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="memory", daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        #: Peaks in MB: of the process, and with its children.
        self.peaks = (0.0, 0.0)

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            own = self._process.memory_info().rss / 1e6
            children = 0.0
            for child in self._process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # one that has just ended
                    children += child.memory_info().rss / 1e6
            self.peaks = (max(self.peaks[0], own), max(self.peaks[1], own + children))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


class _Pace(threading.Thread):
    """Produces small records at a steady rate, and keeps the times to their acknowledgements."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="pace", daemon=True)
        self._topic = topic
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 4,
        })  # fmt: skip
        self._over = threading.Event()
        self._taken_ms: list[float] = []

    def run(self) -> None:
        due = time.perf_counter()
        while not self._over.is_set():
            self._producer.produce(self._topic, bytes(RECORD_BYTES), on_delivery=self._delivered)
            due = max(due + 1 / RATE, time.perf_counter())
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
        self._producer.flush(60)

    def take_p99(self) -> float:
        """The 99th percentile in ms since the last call, or since the start."""
        found, self._taken_ms = sorted(self._taken_ms), []
        return found[len(found) * 99 // 100]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        latency = message.latency()
        assert latency is not None
        self._taken_ms.append(latency * 1e3)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
