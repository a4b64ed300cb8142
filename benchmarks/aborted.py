"""Reads of committed data in logs with many aborted transactions outside of the range.

Owns: these logs, and the reads.  Must not know how a row is shown.

The logs have few batches.  What counts are the entries of their transaction indexes, which say that
the aborted transactions lie in offsets without batches, as after compaction.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.harness import Row, in_turns, report
from sparklog.config import TopicConfig
from sparklog.executors.log import AbortedTxn, Log
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, encode_batch

COUNTS: Final = (1_000, 1_000_000)
ROUNDS: Final = 15
READS: Final = 1_000
READ_BYTES: Final = 100_000
#: Batches of ten records of this size lie around the range.
_VALUE_BYTES: Final = 1_000
_BATCHES: Final = 50
_TP: Final = TopicPartition("bench", 0)
#: The offsets of the batches, and a range of offsets without batches on each side.
_FIRST: Final = 3_000_000
_LAST: Final = 6_000_000

#: Makes so many entries of a transaction index.
MakeEntries = Callable[[int], list[AbortedTxn]]


def rows(console: Console) -> list[Row]:
    """Return reads with aborted transactions outside of their range, against reads without."""
    found = []
    with _log(()) as without:
        for what, entries in (
            ("before the range", _before),
            ("behind the range", _behind),
            ("behind it, while one transaction stayed open", _behind_an_open_one),
        ):
            for count in COUNTS:
                console.print(f"aborted: {count:,} {what}")
                with _log(entries(count)) as log:
                    ours, base = in_turns(lambda: _read(log), lambda: _read(without), ROUNDS)
                found.append(
                    Row(
                        what=f"read of committed data, {count:,} aborted transactions {what}",
                        unit="us",
                        ours=ours,
                        base=base,
                        asked=None,
                        at_most=True,
                    )
                )
    return found


def _before(count: int) -> list[AbortedTxn]:
    return [AbortedTxn(n % 50, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(1, count + 1)]


def _behind(count: int) -> list[AbortedTxn]:
    first = _FIRST + 100_000
    return [
        AbortedTxn(n % 50, first + 2 * n, first + 2 * n + 1, first + 2 * n + 2)
        for n in range(count)
    ]


def _behind_an_open_one(count: int) -> list[AbortedTxn]:
    """The open transaction began before the range."""
    return [txn._replace(last_stable_offset=_FIRST) for txn in _behind(count)]


@contextmanager
def _log(aborted: Sequence[AbortedTxn]) -> Iterator[Log]:
    """A log of one segment with this transaction index, which is loaded as after a restart."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        log = _open(Path(name))
        _append(log, 0, 1)
        for number in range(_BATCHES):
            _append(log, _FIRST + number * 10, 10)
        _append(log, _LAST, 1)
        log.segments[-1].txn_index.replace(aborted)
        log.close(0)
        log = _open(Path(name))
        yield log
        log.close(0)


def _open(folder: Path) -> Log:
    return Log.open(
        LocalBackend(folder),
        str(_TP),
        topic_partition=_TP,
        config=TopicConfig(retention_ms=-1),
        files=FileCache(16),
        producers=ProducerStateManager(_TP),
        now_ms=0,
        clean=True,
    )


def _append(log: Log, offset: int, count: int) -> None:
    records = [Record(value=bytes(_VALUE_BYTES))] * count
    batch = encode_batch(records, base_offset=offset, leader_epoch=0)
    log.append([batch], [header for header, _ in iter_batches(batch)], 0)


def _read(log: Log) -> float:
    """Return the microseconds of a read."""
    end = log.log_end_offset
    began = time.perf_counter()
    for _ in range(READS):
        found = log.read(_FIRST + 100, READ_BYTES, end_offset=end, with_aborted=True)
        assert found.region is not None
        assert not found.aborted
        found.region.release()
    return (time.perf_counter() - began) / READS * 1e6


if __name__ == "__main__":
    console = Console()
    report(rows(console), console)
