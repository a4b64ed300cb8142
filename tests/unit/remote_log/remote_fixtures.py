"""What the tests of the remote log share: logs with everything in them, and copies of segments.

Owns: a log of small sealed segments, the jobs that copy them, and a store that takes uploads.  Must
not know what is tested.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.executors.log import AbortedTxn, Log, Segment, aborted_overlapping
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.copying import copy_segment
from sparklog.remote_log.reading import RemoteRead
from sparklog.remote_log.remote_segment import EpochStart, PartName, RemoteSegment
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import Compression, TimestampType
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from tests.unit.executors.log.log_fixtures import PARTITION_DIR, SMALL, Desk

FOLDER = "topic/0/segments"
SUFFIXES = {
    PartName.OFFSET_INDEX: ".index",
    PartName.TIME_INDEX: ".timeindex",
    PartName.STATS: ".stats",
}


class Bucket(MemoryBackend):
    """A store of objects."""

    def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
        data = b"".join(chunks)
        self.put(path, data)
        return len(data)

    def flip(self, path: str, position: int, mask: int = 0x01) -> None:
        """Change the bits of ``mask`` in one byte."""
        data = bytearray(self.read(path))
        data[position] ^= mask
        self.put(path, data)


@dataclass
class RichLog:
    """A log with transactions, leader epochs and compressed batches, in small segments."""

    desk: Desk = field(default_factory=lambda: Desk(config=replace(SMALL, segment_bytes=1200)))
    bucket: Bucket = field(default_factory=Bucket)
    leader_epoch: int = 0
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.desk.open()

    def put(self, *timestamps: int, producer_id: int = -1, size: int = 20, **options: Any) -> None:
        """Append a batch with one record per timestamp; transactional with a producer id."""
        sequence = -1
        if producer_id >= 0:
            entry = self.desk.producers.entries.get(producer_id)
            sequence = 0 if entry is None else entry.last_sequence + 1
        data = encode_batch(
            [Record(value=b"v" * size, timestamp=timestamp) for timestamp in timestamps],
            base_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            transactional=producer_id >= 0,
            **options,
        )
        self._append(data)

    def end(self, producer_id: int, kind: ControlType = ControlType.ABORT) -> None:
        """Append the marker that ends the transaction of a producer."""
        marker = EndTxnMarker(control_type=kind, coordinator_epoch=0)
        data = encode_marker(
            marker,
            base_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=50,
        )
        self._append(data, marker)

    def _append(self, data: bytes, marker: EndTxnMarker | None = None) -> None:
        ((header, _),) = iter_batches(data)
        aborted: AbortedTxn | None = None
        if marker is not None and marker.control_type is ControlType.ABORT:
            aborted = self.desk.producers.aborted_by(header, marker)
        self.log.append([data], [header], 0, aborted)
        self.desk.producers.replay(header, 0, marker)

    def seal(self) -> Sequence[Segment]:
        """Seal and measure everything; return the sealed segments."""
        self.log.roll(0)
        self.log.statistics.measure_pending()
        return self.log.segments[:-1]

    def job(self, segment: Segment, **changes: Any) -> CopyJob:
        """The job that copies a sealed segment."""
        there = set(self.desk.names())
        files = {
            name: f"{segment.base_offset:020d}{suffix}" for name, suffix in SUFFIXES.items()
        } | {PartName.PRODUCER_SNAPSHOT: f"{segment.next_offset:020d}.snapshot"}
        job = CopyJob(
            url=self.desk.half.url,
            partition_dir=PARTITION_DIR,
            log_file=f"{segment.base_offset:020d}.log",
            part_files={name: file for name, file in files.items() if file in there},
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            log_size=segment.size,
            leader_epochs=tuple(
                EpochStart(entry.epoch, entry.start_offset)
                for entry in self.log.leader_epochs.entries
                if entry.start_offset < segment.next_offset
            ),
            aborted=tuple(
                RemoteAbortedTxn(*txn[:3])
                for txn in aborted_overlapping(self.log.segments, segment)
            ),
            folder=FOLDER,
            segment_id=names.segment_id(segment.base_offset, self.leader_epoch, 1, bytes(8)),
        )
        return replace(job, **changes)

    def copy(self, segment: Segment, **changes: Any) -> RemoteSegment:
        job = self.job(segment, **changes)
        return copy_segment(job, self.desk.half, self.bucket, lambda _: None)

    def copy_all(self) -> list[RemoteSegment]:
        return [self.copy(segment) for segment in self.seal()]


def log_path(segment: RemoteSegment) -> str:
    return names.log_object(FOLDER, segment.segment_id)


def indexes_path(segment: RemoteSegment) -> str:
    return names.indexes_object(FOLDER, segment.segment_id)


def local_read(
    log: Log, offset: int, max_bytes: int, *, end_offset: int, min_one: bool
) -> RemoteRead:
    """``Log.read`` in the form of a remote read."""
    found = log.read(offset, max_bytes, end_offset=end_offset, min_one=min_one, with_aborted=True)
    if found.region is None:
        return RemoteRead(b"", offset, offset)
    data = found.region.read()
    found.region.release()
    *_, (last, _) = iter_batches(data)
    aborted = tuple(RemoteAbortedTxn(*txn[:3]) for txn in found.aborted)
    return RemoteRead(data, found.first_offset, last.next_offset, aborted)


def fill(rich: RichLog) -> None:
    """A few segments, with aborted transactions across them and times in no order."""
    rich.put(100, 90, 105)
    rich.put(110, producer_id=7)
    for number, codec in enumerate(Compression):
        rich.put(*range(200 + 10 * number, 206 + 10 * number), compression=codec)
        rich.put(150, producer_id=8)
        rich.end(8, ControlType.ABORT if number % 2 else ControlType.COMMIT)
        rich.put(120, size=150)
    rich.leader_epoch = 3
    rich.put(500, producer_id=9)
    rich.put(*(400,) * 3, timestamp_type=TimestampType.LOG_APPEND_TIME)
    for number in range(8):
        rich.put(300 + number, 310 + number, size=60)
    rich.end(9, ControlType.COMMIT)
    rich.leader_epoch = 4
    rich.put(505, producer_id=9, size=700)
    rich.end(7)
    rich.put(-1)
    rich.put(600, size=1500)
    rich.leader_epoch = 9
    for number in range(12):
        rich.put(590 + number, size=40)
    rich.end(9)
    rich.put(7)
