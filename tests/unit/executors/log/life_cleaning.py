"""The cleanings in the life of a log: the real plan and the real rewrite.

Owns: the job of a cleaning, as ``LogCleaner`` makes it, and the batches that it leaves.  Must not
know the dice of a life, nor when the machine stops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.executors.cleaner.job import CleaningJob, LastRecord, SourceSegment
from sparklog.executors.cleaner.plan import (
    CleanableRange,
    cleanable_range,
    delete_horizon_ms,
    group_segments,
)
from sparklog.executors.log.cleaned_segments import CleanedGroup
from sparklog.executors.log.log import Log
from sparklog.executors.log.names import LOG_SUFFIX
from sparklog.executors.partition import ProducerStateManager
from sparklog.storage_backends.base import FileHalf
from sparklog.types import NO_OFFSET
from sparklog.wire.records.batch import BatchHeader, iter_batches
from sparklog.wire.records.builder import Record, decode_records
from tests.unit.executors.log.log_fixtures import PARTITION_DIR


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A batch of the log."""

    header: BatchHeader
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """The batches that stand in [begin, end) once a group is swapped in."""

    begin: int
    end: int
    batches: tuple[Stored, ...]

    def applied_to(self, stored: Sequence[Stored]) -> list[Stored]:
        before = [each for each in stored if each.header.base_offset < self.begin]
        behind = [each for each in stored if each.header.base_offset >= self.end]
        return [*before, *self.batches, *behind]


def plan(half: FileHalf, log: Log, producers: ProducerStateManager, now_ms: int) -> CleaningJob:
    """The job that cleans all that may be cleaned; it may have no groups."""
    dirty: CleanableRange = cleanable_range(
        log.segments,
        config=log.config,
        clean_offset=log.clean_offset,
        log_start_offset=log.log_start_offset,
        stable_offset=log.recovery_point,
        now_ms=now_ms,
    )
    groups = group_segments(log.segments, config=log.config, end_offset=dirty.end)
    return CleaningJob(
        url=half.url,
        partition_dir=PARTITION_DIR,
        groups=tuple(
            tuple(
                SourceSegment(base_offset=s.base_offset, next_offset=s.next_offset, size=s.size)
                for s in group
            )
            for group in groups
        ),
        first_dirty=dirty.first_dirty,
        end_offset=dirty.end,
        now_ms=now_ms,
        delete_horizon_ms=delete_horizon_ms(log.config, now_ms),
        producers=_last_records(producers, dirty.end),
        index_interval_bytes=log.config.index_interval_bytes,
    )


def _last_records(producers: ProducerStateManager, end_offset: int) -> dict[int, LastRecord]:
    found: dict[int, LastRecord] = {}
    for producer_id, entry in producers.entries.items():
        data_offset = entry.batches[-1].last_offset if entry.batches else NO_OFFSET
        if data_offset < end_offset:
            found[producer_id] = LastRecord(
                data_offset=data_offset, producer_epoch=entry.producer_epoch
            )
    return found


def cleaned_batches(half: FileHalf, group: CleanedGroup) -> Swapped:
    """What a group will hold, from the ``.cleaned`` file."""
    data = half.read(group.segment.path(PARTITION_DIR, LOG_SUFFIX))
    return Swapped(
        begin=group.segment.base_offset,
        end=group.segment.next_offset,
        batches=tuple(
            Stored(header=header, data=data[start : start + header.size])
            for header, start in iter_batches(data)
        ),
    )


def check_keys(
    there: Sequence[Record], written: dict[int, Record], log_start: int, horizon_ms: int
) -> None:
    """The last record of each key is there as it was written, and no older one without it.

    A tombstone may be gone ``horizon_ms`` after it was written, and then all older records are.
    """
    found = {record.offset: record for record in there}
    last: dict[bytes, Record] = {}
    for offset in sorted(written):
        record = written[offset]
        if record.key is not None and offset >= log_start:
            last[record.key] = record
    alive = {record.key for record in there}
    for key, record in last.items():
        if record.offset in found:
            assert found[record.offset] == record, record
        else:
            assert record.value is None, f"the last record of {key!r} is gone: {record}"
            assert record.timestamp <= horizon_ms, f"a tombstone went early: {record}"
            assert key not in alive, f"an older record of {key!r} came back"
    for offset, record in found.items():
        assert written[offset] == record, record


def records_of(stored: Sequence[Stored], log_start: int) -> list[Record]:
    return [
        record
        for each in stored
        for record in decode_records(each.data)
        if record.offset >= log_start
    ]
