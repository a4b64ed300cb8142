"""What the tests of the log share: batches in a row, and a log that is easy to open again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import OffsetTimestamp, TimestampType, TopicPartition
from sparklog.wire.records.batch import BatchHeader, iter_batches
from sparklog.wire.records.builder import Record, decode_records, encode_batch

TP = TopicPartition("events", 0)
PARTITION_DIR = "broker-1/events-0"
#: Small enough that a few records roll, index and delete.
SMALL = TopicConfig(
    segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=4096, retention_ms=-1
)


def batch(
    base_offset: int,
    timestamps: Sequence[int] = (0,),
    *,
    size: int = 20,
    leader_epoch: int = 0,
    producer_id: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    keys: Sequence[bytes | None] = (),
    tombstones: bool = False,
) -> bytes:
    """A batch with one record per timestamp, each with ``size`` bytes of value.

    ``keys`` are the keys of the first records; the others have none.  With ``tombstones``, records
    with a key have no value.
    """
    return encode_batch(
        [
            Record(
                key=key,
                value=None if tombstones and key is not None else b"v" * size,
                timestamp=timestamp,
            )
            for timestamp, key in zip_longest(timestamps, keys)
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
        timestamp_type=timestamp_type,
    )


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for header, _ in iter_batches(data)]


def put(log: Log, *timestamps: int, now_ms: int = 0, **fields: Any) -> bytes:
    """Append one batch at the log's end; its bytes."""
    data = batch(log.log_end_offset, timestamps or (0,), **fields)
    log.append([data], headers_of(data), now_ms)
    return data


def fill(log: Log, count: int, *, size: int = 20, now_ms: int = 0) -> list[bytes]:
    """Batches of one record each; the timestamp is the offset."""
    return [put(log, log.log_end_offset, size=size, now_ms=now_ms) for _ in range(count)]


def read_all(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from ``start`` on, through as many reads as it takes."""
    offset = log.log_start_offset if start is None else start
    found: list[Record] = []
    while offset < log.log_end_offset:
        got = log.read(offset, max_bytes, end_offset=log.log_end_offset)
        assert got.region is not None
        assert got.region.size == got.size
        data = got.region.read()
        got.region.release()
        found += [record for record in decode_records(data) if record.offset >= offset]
        offset = headers_of(data)[-1].next_offset
    return found


def read_bytes(log: Log) -> Iterator[bytes]:
    """The batches from the one that holds the log start on, as they are on the disk."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        got = log.read(offset, 1, end_offset=log.log_end_offset)
        assert got.region is not None
        data = got.region.read()
        got.region.release()
        yield data
        offset = headers_of(data)[-1].next_offset


def first_since(log: Log, timestamp: int) -> OffsetTimestamp | None:
    return run_through(log.times.first_from(timestamp))


def with_largest(log: Log) -> OffsetTimestamp | None:
    return run_through(log.times.largest())


@dataclass
class Desk:
    """A backend, and the log on it that is opened again and again."""

    half: FileHalf = field(default_factory=MemoryBackend)
    config: TopicConfig = SMALL
    topic_id: UUID | None = None
    files: FileCache = field(default_factory=lambda: FileCache(16))
    producers: ProducerStateManager = field(default_factory=lambda: ProducerStateManager(TP))

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        local_log_start_offset: int = 0,
        now_ms: int = 0,
        **changes: Any,
    ) -> Log:
        """A new process opens the log: nothing is open, nothing is remembered."""
        self.config = replace(self.config, **changes)
        self.files = FileCache(16)
        self.producers = ProducerStateManager(TP)
        return Log.open(
            self.half,
            PARTITION_DIR,
            topic_partition=TP,
            config=self.config,
            files=self.files,
            producers=self.producers,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            local_log_start_offset=local_log_start_offset,
            topic_id=self.topic_id,
        )

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.half.list(PARTITION_DIR) if name.endswith(suffix)]

    def path(self, name: str) -> str:
        return f"{PARTITION_DIR}/{name}"
