"""The cost of opening a long log after a crash.

Owns: logs of any length that take no space on the disk, because their batches are large and hold
zeros.  Must not know how a row is shown.
"""

import time
from pathlib import Path

from crc32c import crc32c
from rich.console import Console

from benchmarks.harness import Row
from sparklog.config import TopicConfig
from sparklog.executors.log.checkpoint import EpochEntry, encode_epochs
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.log.names import EPOCH_CHECKPOINT
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.producer_snapshot import encode_snapshot
from sparklog.executors.log.time_index import TimeIndex
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BATCH_OVERHEAD, CRC_START, HEADER, LOG_OVERHEAD

SEGMENTS = 10
_ROUNDS = 5

_SEGMENT_BYTES = 1 << 30
_BATCH_BYTES = 1 << 20
_BATCHES = _SEGMENT_BYTES // _BATCH_BYTES
_PARTITION = TopicPartition("bench", 0)
_TIMESTAMP = 1_700_000_000_000
_ZEROS = bytes(_BATCH_BYTES)


def recover_unclean(folder: Path, console: Console) -> list[Row]:
    """Compare logs of ten segments and of one, both with the last segment unflushed."""
    console.print(f"recovery: a log of {SEGMENTS} GB and one of 1 GB after a crash")
    crc = crc32c(memoryview(_packed(0, 0))[CRC_START:BATCH_OVERHEAD])
    crc = crc32c(_ZEROS[BATCH_OVERHEAD:], crc)
    for segments, name in ((SEGMENTS, "long"), (1, "short")):
        for number in range(segments):
            _write_segment(folder / name / str(_PARTITION), number * _BATCHES, crc)
    found = [
        (_recover(folder / "long", SEGMENTS), _recover(folder / "short", 1)) for _ in range(_ROUNDS)
    ]
    long, long_bytes = min(each[0] for each in found)
    short, short_bytes = min(each[1] for each in found)
    console.print(f"  read {long_bytes >> 20} MB and {short_bytes >> 20} MB")
    return [
        Row(
            what="recovery of a 10 GB log with 1 GB unflushed, against that 1 GB alone",
            unit="s",
            ours=long,
            base=short,
            asked=2,
            at_most=True,
        ),
        Row(
            what="bytes that it reads, against one segment",
            unit="MB",
            ours=long_bytes / 1e6,
            base=_SEGMENT_BYTES / 1e6,
            asked=1.01,
            at_most=True,
        ),
    ]


def _recover(folder: Path, segments: int) -> tuple[float, int]:
    """Recover a log; return the seconds and the scanned bytes."""
    began = time.perf_counter()
    log = Log.open(
        LocalBackend(folder),
        str(_PARTITION),
        topic_partition=_PARTITION,
        config=TopicConfig(),
        files=FileCache(16),
        producers=ProducerStateManager(_PARTITION),
        now_ms=0,
        recovery_point=(segments - 1) * _BATCHES + 1,
    )
    seconds = time.perf_counter() - began
    assert log.log_end_offset == segments * _BATCHES
    assert log.recovery.batches_replayed == _BATCHES
    scanned = log.recovery.bytes_scanned
    log.close(0, clean=False)
    return seconds, scanned


def _write_segment(partition_dir: Path, base_offset: int, crc: int) -> None:
    partition_dir.mkdir(parents=True, exist_ok=True)
    offsets, times = bytearray(), bytearray()
    with (partition_dir / f"{base_offset:020d}.log").open("wb") as log:
        for number in range(_BATCHES):
            log.seek(number * _BATCH_BYTES)
            log.write(_packed(base_offset + number, crc))
            if number:
                offsets += OffsetIndex.ENTRY.pack(number, number * _BATCH_BYTES)
        log.truncate(_SEGMENT_BYTES)
    times += TimeIndex.ENTRY.pack(_TIMESTAMP, 0)
    (partition_dir / f"{base_offset:020d}.index").write_bytes(offsets)
    (partition_dir / f"{base_offset:020d}.timeindex").write_bytes(times)
    (partition_dir / f"{base_offset:020d}.snapshot").write_bytes(encode_snapshot([]))
    checkpoint = encode_epochs([EpochEntry(0, 0)])
    (partition_dir / EPOCH_CHECKPOINT).write_bytes(checkpoint)


def _packed(offset: int, crc: int) -> bytes:
    """The header of a batch with one record."""
    length = _BATCH_BYTES - LOG_OVERHEAD
    return HEADER.pack(offset, length, 0, 2, crc, 0, 0, _TIMESTAMP, _TIMESTAMP, -1, -1, -1, 1)
