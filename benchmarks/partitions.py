"""The cost of partitions for a broker that has nothing to do with most of them.

Owns: the idle cost, and the start after a clean stop (``recovery`` has the start after a crash).
Must not know how a row is shown.
"""

import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.harness import Row
from benchmarks.recovery import recover_unclean
from benchmarks.servers import cpu_seconds, resident_megabytes, serve
from sparklog.client.blocking import BlockingClient
from sparklog.executors.log_dirs.broker_dir import CLEAN_MARKER
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

PARTITIONS = 1000

_TOPICS = 10
_BATCH_BYTES = 6000
#: Batches per partition: enough for both indexes to have entries.
_BATCHES = 3
_SETTLE_S = 5.0
_IDLE_S = 20.0


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        folder = Path(name)
        return [*_partitions(folder / "data", console), *recover_unclean(folder / "log", console)]


def _partitions(folder: Path, console: Console) -> list[Row]:
    console.print(f"partitions: creating and filling {PARTITIONS}")
    for _ in range(2):  # the first start creates the cluster
        with serve(folder, brokers=1) as empty:
            started = empty.seconds_to_ready
    with serve(folder, brokers=1) as served:
        _fill(served.bootstrap)
        (pid,) = served.broker_pids()
        console.print(f"partitions: idle for {_IDLE_S:.0f} s")
        idle = _idle(pid)
    marker = folder / "broker-1" / CLEAN_MARKER
    assert marker.exists(), "the broker did not stop cleanly"
    with serve(folder, brokers=1) as served:
        seconds = served.seconds_to_ready - started
    return [
        _at_most("start with 1,000 clean partitions, longer than with none by", "s", seconds, 3),
        *idle,
    ]


def _idle(pid: int) -> list[Row]:
    """Measure an idle broker, all of whose partitions were written to."""
    time.sleep(_SETTLE_S)
    before = cpu_seconds(pid)
    time.sleep(_IDLE_S)
    share = (cpu_seconds(pid) - before) / _IDLE_S
    return [
        _at_most("a broker with 1,000 idle partitions", "% of a core", share * 100, 2),
        _at_most("its resident memory", "MB", resident_megabytes(pid), 150),
        _at_most("its open files", "files", psutil.Process(pid).num_fds(), 600),
    ]


def _fill(bootstrap: Endpoint) -> None:
    with BlockingClient([bootstrap], client_id="bench", timeout_s=300) as client:
        share = PARTITIONS // _TOPICS
        for topic in range(_TOPICS):
            client.admin.create_topic(f"bench-{topic}", share)
            for number in range(share):
                for _ in range(_BATCHES):
                    partition = TopicPartition(f"bench-{topic}", number)
                    client.produce(partition, [_batch()], acks=1)


def _batch() -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return encode_batch([Record(value=bytes(_BATCH_BYTES), timestamp=now_ms)])


def _at_most(what: str, unit: str, figure: float, asked: float) -> Row:
    return Row(what=what, unit=unit, ours=figure, base=None, asked=asked, at_most=True)
