"""A million transactional ids: what they cost node 0, and how long a new control plane loads them.

Owns: the log of ``__transaction_state`` that a restarted cluster finds, and the figures.  Must not
know how a coordinator loads.

A cluster makes the topic and stops; then each partition gets the records of its ids, as the
coordinator writes them, and the cluster starts again.
"""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Producer
from rich.console import Console

from benchmarks.harness import Row, report
from benchmarks.produce_frames import CLIENT
from benchmarks.servers import Served, resident_megabytes, serve
from sparklog.client.connection import Connection
from sparklog.config import TopicConfig
from sparklog.driver.transactions.records import transaction_record
from sparklog.driver.transactions.transaction import Transaction
from sparklog.driver.transactions.transaction_state import TransactionState
from sparklog.errors import ErrorCode
from sparklog.executors.log import Log
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import TRANSACTION_STATE
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, encode_batch

IDS: Final = 1_000_000
PARTITIONS: Final = 50
#: Records of one batch of the log.
_AT_ONCE: Final = 500
_START_MS: Final = 1_700_000_000_000
_CONTROL_PLANE: Final = "sparklog.driver"
_LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_LOOK_S: Final = 0.02
_PATIENCE_S: Final = 600.0


def rows(console: Console) -> list[Row]:
    """Return the rows; there is one broker."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        folder = Path(name) / "data"
        with serve(folder, 1) as served:
            _make_topic(served)
            before = resident_megabytes(_control_plane(served).pid)
        console.print(f"transactions: the log of {IDS:,} transactional ids")
        _write_logs(folder / "broker-1")
        console.print("transactions: a new control plane loads them")
        with serve(folder, 1) as served:
            return _loaded(served, before)


def _loaded(served: Served, before: float) -> list[Row]:
    began = time.perf_counter()
    slowest = asyncio.run(_await_loaded(served.bootstrap))
    taken = time.perf_counter() - began + served.seconds_to_ready
    pid = _control_plane(served).pid
    after = resident_megabytes(pid)
    what = f"{IDS:,} transactional ids"
    return [
        Row(
            what=f"{what}: start of the cluster until it serves",
            unit="s",
            ours=served.seconds_to_ready,
            base=None,
            asked=None,
        ),
        Row(what="until all are loaded", unit="s", ours=taken, base=None, asked=None),
        Row(
            what="the slowest answer of node 0 while it loads",
            unit="ms",
            ours=slowest * 1e3,
            base=None,
            asked=None,
        ),
        Row(
            what="memory of node 0 for one of them",
            unit="bytes",
            ours=(after - before) * 1e6 / IDS,
            base=None,
            asked=None,
            digits=0,
        ),
        Row(
            what="memory of node 0 while it loads, at most, against afterwards",
            unit="MB",
            ours=_peak_megabytes(pid),
            base=after,
            asked=1.2,
            at_most=True,
        ),
    ]


def _make_topic(served: Served) -> None:
    """The first transactional producer makes the topic."""
    producer = Producer({"bootstrap.servers": str(served.bootstrap), "transactional.id": "first"})
    producer.init_transactions(_PATIENCE_S)


def _control_plane(served: Served) -> psutil.Process:
    children = psutil.Process(served.pid).children(recursive=True)
    (found,) = [child for child in children if child.cmdline()[-1] == _CONTROL_PLANE]
    return found


def _peak_megabytes(pid: int) -> float:
    """The largest resident memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError("Linux tells the peak of a process")


# the log


def _write_logs(broker_dir: Path) -> None:
    numbers: dict[int, list[int]] = defaultdict(list)
    for number in range(IDS):
        numbers[partition_for(_transactional_id(number), PARTITIONS)].append(number)
    for partition in range(PARTITIONS):
        tp = TopicPartition(TRANSACTION_STATE, partition)
        log = Log.open(
            LocalBackend(broker_dir),
            str(tp),
            topic_partition=tp,
            config=TopicConfig(),
            files=FileCache(16),
            producers=ProducerStateManager(tp),
            now_ms=0,
            must_exist=True,
        )
        for records in _batches(numbers[partition]):
            batch = encode_batch(records, base_offset=log.log_end_offset, leader_epoch=0)
            log.append([batch], [header for header, _ in iter_batches(batch)], 0)
        log.flush(0)
        log.close(0)


def _batches(numbers: Sequence[int]) -> Iterator[list[Record]]:
    for first in range(0, len(numbers), _AT_ONCE):
        yield [_record(number) for number in numbers[first : first + _AT_ONCE]]


def _record(number: int) -> Record:
    record = transaction_record(
        Transaction(
            transactional_id=_transactional_id(number),
            producer_id=number,
            producer_epoch=number % 100,
            timeout_ms=60_000,
            state=TransactionState.COMPLETE_COMMIT,
            start_ms=_START_MS + number,
            update_ms=_START_MS + number + 50,
        )
    )
    return Record(key=record.key, value=record.value, timestamp=_START_MS + number)


def _transactional_id(number: int) -> str:
    return f"orders-processor-{number:08d}"


# the loading


async def _await_loaded(node: Endpoint) -> float:
    """Ask until each partition of the topic is loaded; return the seconds of the slowest answer."""
    asked = {partition_for(_transactional_id(n), PARTITIONS): n for n in range(1000)}
    assert len(asked) == PARTITIONS
    request = DescribeTransactionsRequest(
        transactional_ids=tuple(map(_transactional_id, asked.values()))
    )
    connection = await Connection.open(node, client_id=CLIENT)
    slowest, deadline = 0.0, time.monotonic() + _PATIENCE_S
    try:
        while True:
            began = time.perf_counter()
            response = await connection.request(request, timeout_s=_PATIENCE_S)
            slowest = max(slowest, time.perf_counter() - began)
            codes = {each.error_code for each in response.transaction_states}
            if codes == {ErrorCode.NONE}:
                return slowest
            assert codes <= {ErrorCode.NONE, *_LOADING}, codes
            assert time.monotonic() < deadline, codes
            await asyncio.sleep(_LOOK_S)
    finally:
        connection.close()


if __name__ == "__main__":
    console = Console()
    report(rows(console), console)
