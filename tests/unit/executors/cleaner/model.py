"""A log of files for the tests of compaction, and a model of compaction record by record.

The model knows nothing of columns: it is what Kafka's documentation says, in plain Python.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sparklog.executors.cleaner.job import (
    CleaningJob,
    CleaningReport,
    LastRecord,
    SourceSegment,
)
from sparklog.executors.cleaner.rewrite import clean
from sparklog.executors.log import (
    CLEANED_SUFFIXES,
    AbortedTxn,
    CleanedSegment,
    CleanedWriter,
    read_aborted,
)
from sparklog.executors.partition import ProducerStateManager
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import NO_OFFSET, Compression, TimestampType, TopicPartition
from sparklog.wire.records.batch import BatchHeader, check_batch, iter_batches, read_header
from sparklog.wire.records.builder import Record, decode_batch, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker, read_marker

PARTITION_DIR = "broker-1/t-0"
TP = TopicPartition("t", 0)


@dataclass(frozen=True, kw_only=True)
class ModelBatch:
    """A batch as a reader sees it; ``horizon`` is its delete horizon."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: Compression
    timestamp_type: TimestampType
    transactional: bool
    control: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    horizon: int | None
    records: tuple[Record, ...]
    marker: EndTxnMarker | None = None


def decode(data: bytes) -> list[ModelBatch]:
    found = []
    for header, start in iter_batches(data):
        check_batch(data, start, header)
        found.append(
            ModelBatch(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                leader_epoch=header.partition_leader_epoch,
                codec=header.compression,
                timestamp_type=header.timestamp_type,
                transactional=header.is_transactional,
                control=header.is_control,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                max_timestamp=header.max_timestamp,
                horizon=header.base_timestamp if header.has_delete_horizon else None,
                records=tuple(decode_batch(data, start, header)),
                marker=read_marker(data, start, header) if header.is_control else None,
            )
        )
    return found


@dataclass
class FileLog:
    """Segments as files, written as the log writes them; the last one is active."""

    half: FileHalf = field(default_factory=MemoryBackend)
    segments: list[CleanedSegment] = field(default_factory=list)
    producers: ProducerStateManager = field(default_factory=lambda: ProducerStateManager(TP))
    leader_epoch: int = 3

    def __post_init__(self) -> None:
        self.half.make_folder(PARTITION_DIR)
        self.end_offset = 0
        self._active: list[tuple[bytes, BatchHeader]] = []
        self._aborted: list[AbortedTxn] = []
        self._sequences: dict[int, int] = {}

    # writing

    def append(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        codec: Compression = Compression.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> None:
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self._sequences[producer_id] = sequence + len(records)
        self._put(
            encode_batch(
                [replace(r, offset=self.end_offset + n) for n, r in enumerate(records)],
                base_offset=self.end_offset,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else 0,
                base_sequence=sequence,
                transactional=transactional,
                timestamp_type=timestamp_type,
                leader_epoch=self.leader_epoch,
            )
        )

    def end(self, producer_id: int, kind: ControlType, timestamp: int = 0, epoch: int = 0) -> None:
        self._put(
            encode_marker(
                EndTxnMarker(control_type=kind, coordinator_epoch=1),
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp=timestamp,
                base_offset=self.end_offset,
                leader_epoch=self.leader_epoch,
            )
        )

    def _put(self, data: bytes) -> None:
        header = read_header(data)
        marker = read_marker(data, 0, header) if header.is_control else None
        aborted = self.producers.replay(header, 0, marker)
        if aborted is not None:
            self._aborted.append(aborted)
        self._active.append((data, header))
        self.end_offset = header.next_offset

    def roll(self) -> None:
        """Seal the active segment, unless it is empty."""
        if not self._active:
            return
        writer = CleanedWriter(self.half, PARTITION_DIR, self._active[0][1].base_offset, 64)
        for data, header in self._active:
            writer.append(data, header)
        for aborted in self._aborted:
            writer.append_aborted(aborted)
        segment = writer.finish()
        self._swap(segment)
        self.segments.append(segment)
        self._active, self._aborted = [], []

    # cleaning

    @property
    def stable_offset(self) -> int:
        return min(self.producers.transactions.ongoing, default=self.end_offset)

    def job(
        self,
        *,
        first_dirty: int = 0,
        now_ms: int = 0,
        delete_retention_ms: int = 100,
        group_size: int = 100,
        **settings: int,
    ) -> CleaningJob | None:
        """A job for all sealed segments that are stable, in groups of so many segments."""
        self.roll()
        sealed = [s for s in self.segments if s.next_offset <= self.stable_offset]
        if not sealed or sealed[-1].next_offset <= first_dirty:
            return None
        sources = [
            SourceSegment(base_offset=s.base_offset, next_offset=s.next_offset, size=s.size)
            for s in sealed
        ]
        return CleaningJob(
            url="memory://",
            partition_dir=PARTITION_DIR,
            groups=tuple(
                tuple(sources[at : at + group_size]) for at in range(0, len(sources), group_size)
            ),
            first_dirty=first_dirty,
            end_offset=sealed[-1].next_offset,
            now_ms=now_ms,
            delete_horizon_ms=now_ms + delete_retention_ms,
            producers=self.last_records(),
            aborted_entries=tuple((s.base_offset, s.aborted_entries) for s in self.segments),
            index_interval_bytes=64,
            **settings,
        )

    def last_records(self) -> dict[int, LastRecord]:
        return {
            producer_id: LastRecord(
                data_offset=entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
                producer_epoch=entry.producer_epoch,
            )
            for producer_id, entry in self.producers.entries.items()
        }

    def clean(self, job: CleaningJob) -> CleaningReport:
        """Clean, and swap the segments as the log would."""
        report = clean(self.half, job)
        for group in report.groups:
            at = [segment.base_offset for segment in self.segments].index(group.replaced[0])
            for base in group.replaced:
                for suffix in CLEANED_SUFFIXES:
                    self.half.delete(f"{PARTITION_DIR}/{base:020d}{suffix}")
            former = self.segments[at : at + len(group.replaced)]
            assert tuple(segment.base_offset for segment in former) == group.replaced
            assert former[-1].next_offset == group.segment.next_offset
            self._swap(group.segment)
            self.segments[at : at + len(group.replaced)] = [group.segment]
        assert [name for name in self.half.list(PARTITION_DIR) if name.endswith(".cleaned")] == []
        return report

    def _swap(self, segment: CleanedSegment) -> None:
        for suffix in CLEANED_SUFFIXES:
            path = segment.path(PARTITION_DIR, suffix)
            if self.half.exists(path):
                self.half.rename(path, path.removesuffix(".cleaned"))

    # reading

    def log_bytes(self, segment: CleanedSegment) -> bytes:
        data = self.half.read(f"{PARTITION_DIR}/{segment.base_offset:020d}.log")
        assert len(data) == segment.size
        return data

    def batches(self) -> list[list[ModelBatch]]:
        """The batches of each sealed segment."""
        return [decode(self.log_bytes(segment)) for segment in self.segments]

    @property
    def aborted(self) -> list[AbortedTxn]:
        entries = [(s.base_offset, s.aborted_entries) for s in self.segments]
        return read_aborted(self.half, PARTITION_DIR, entries)

    def replayed(self) -> ProducerStateManager:
        """The producer state after a replay of all sealed segments."""
        producers = ProducerStateManager(TP)
        for segment in self.segments:
            data = self.log_bytes(segment)
            for header, start in iter_batches(data):
                marker = read_marker(data, start, header) if header.is_control else None
                producers.replay(header, 0, marker)
        return producers


def model_clean(
    segments: Sequence[Sequence[ModelBatch]], job: CleaningJob, end_offset: int
) -> list[list[ModelBatch]]:
    """What a cleaning makes of the segments; ``end_offset`` is where its slice ends."""
    aborted = _aborted_batches(batch for segment in segments for batch in segment)
    latest: dict[bytes, int] = {}
    for segment in segments:
        for batch in segment:
            if not batch.control and batch.base_offset not in aborted:
                for record in batch.records:
                    if record.key is not None and job.first_dirty <= record.offset < end_offset:
                        latest[record.key] = record.offset
    found: list[list[ModelBatch]] = []
    at = 0
    met: set[int] = set()
    epoch_starts = _epoch_starts(segments)
    for group in job.groups:
        members = list(segments[at : at + len(group)])
        at += len(group)
        if group[0].base_offset >= end_offset:
            found += [list(member) for member in members]
            continue
        last_end = group[-1].next_offset
        left: list[ModelBatch] = []
        for member in members:
            for batch in member:
                kept = _model_batch(batch, job, latest, aborted, met, end_offset)
                must_stay = (
                    batch.last_offset + 1 == last_end
                    or _is_last(batch, job)
                    or batch.base_offset in epoch_starts
                )
                if kept is None and must_stay:
                    kept = batch if not batch.records else _emptied(batch)
                if kept is not None:
                    left.append(kept)
        found.append(left)
    return found + [list(segment) for segment in segments[at:]]


def _epoch_starts(segments: Iterable[Sequence[ModelBatch]]) -> set[int]:
    """The base offsets of the first batch of each leader epoch."""
    starts: dict[int, int] = {}
    for segment in segments:
        for batch in segment:
            starts.setdefault(batch.leader_epoch, batch.base_offset)
    return set(starts.values())


def _aborted_batches(batches: Iterable[ModelBatch]) -> set[int]:
    """The base offsets of the batches of aborted transactions."""
    found: set[int] = set()
    open_batches: dict[int, list[int]] = {}
    for batch in batches:
        if batch.control:
            ended = open_batches.pop(batch.producer_id, [])
            if batch.marker is not None and batch.marker.control_type is ControlType.ABORT:
                found.update(ended)
        elif batch.transactional:
            open_batches.setdefault(batch.producer_id, []).append(batch.base_offset)
    return found


def _model_batch(
    batch: ModelBatch,
    job: CleaningJob,
    latest: dict[bytes, int],
    aborted: set[int],
    met: set[int],
    end_offset: int,
) -> ModelBatch | None:
    """What is left of a batch; None for nothing.  ``met`` are the producers with a batch of their
    present transaction."""
    expired = (
        batch.horizon is not None
        and batch.horizon <= job.now_ms
        and batch.last_offset < job.expires_below
    )
    if batch.control:
        useless = batch.producer_id not in met
        met.discard(batch.producer_id)
        if not batch.records or (useless and expired and not _is_last(batch, job)):
            return None
        if useless and batch.horizon is None:
            return replace(batch, horizon=job.delete_horizon_ms)
        return batch
    if batch.transactional:
        met.add(batch.producer_id)
    if batch.base_offset in aborted or not batch.records:
        return None
    if batch.base_offset >= end_offset:
        return batch
    kept = tuple(
        record
        for record in batch.records
        if record.key is not None
        and record.offset >= latest.get(record.key, -1)
        and not (record.value is None and expired)
    )
    if not kept:
        return None
    left = batch
    if len(kept) < len(batch.records):
        left = replace(batch, records=kept)
        if batch.timestamp_type is TimestampType.CREATE_TIME:
            left = replace(left, max_timestamp=max(record.timestamp for record in kept))
    if any(record.value is None for record in kept) and batch.horizon is None:
        left = replace(left, horizon=job.delete_horizon_ms)
    return left


def _is_last(batch: ModelBatch, job: CleaningJob) -> bool:
    last = job.producers.get(batch.producer_id)
    if last is None:
        return False
    if last.data_offset != NO_OFFSET:
        return not batch.control and batch.last_offset == last.data_offset
    return batch.control and batch.producer_epoch == last.producer_epoch


def _emptied(batch: ModelBatch) -> ModelBatch:
    return replace(batch, records=(), marker=None, horizon=None, codec=Compression.NONE)


def visible(segments: Iterable[Sequence[ModelBatch]]) -> dict[bytes, Record]:
    """What a read_committed reader of the whole log ends up with, by key."""
    batches = [batch for segment in segments for batch in segment]
    aborted = _aborted_batches(batches)
    found: dict[bytes, Record] = {}
    for batch in batches:
        if not batch.control and batch.base_offset not in aborted:
            found.update((r.key, r) for r in batch.records if r.key is not None)
    return found
