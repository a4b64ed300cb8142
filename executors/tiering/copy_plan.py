"""Which segment of a led partition is copied next, and the job that copies it.

Owns: the choice and the job.  Must not know when a copy is made, or where the process is.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sparklog.errors import CorruptLogError
from sparklog.executors.log import AbortedTxn, Log, Segment, Steps, aborted_overlapping
from sparklog.executors.partition import Partition
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.remote_segment import EpochStart, PartName
from sparklog.remote_log.service import LeaderLog, RemotePartition
from sparklog.types import NO_OFFSET

#: The files of a segment that a whole copy takes over.
_SUFFIXES: Final = {
    PartName.OFFSET_INDEX: ".index",
    PartName.TIME_INDEX: ".timeindex",
    PartName.STATS: ".stats",
}


class Candidate(NamedTuple):
    """A sealed segment, and the first of its offsets that is not in the bucket."""

    segment: Segment
    first_offset: int


def next_candidate(
    segments: Sequence[Segment], remote_end: int, stable_offset: int, log_start_offset: int
) -> Candidate | None:
    """The next segment to copy; None if there is none now.

    Args:
        segments: of the log, oldest first; the last one is active and never copied.
        remote_end: the end of what is in the bucket, NO_OFFSET if nothing is.
        stable_offset: below it every record is durable and every transaction decided.
        log_start_offset: segments wholly below it are passed by.
    """
    for segment in segments[:-1]:
        if segment.next_offset <= max(remote_end, log_start_offset) or not segment.size:
            continue
        if segment.next_offset > stable_offset or segment.stats_pending:
            return None
        first = segment.base_offset if remote_end == NO_OFFSET else remote_end
        return Candidate(segment, max(first, segment.base_offset))
    return None


def measured_segment(log: Log, segment: Segment) -> Iterator[Steps[object]]:
    """Work that makes sure of the indexes and the ``.stats`` of a segment.

    Only the first record's range is asked for: the file is written as a whole if it is missing.
    """
    yield log.statistics.ensure_time_index(segment)
    yield log.statistics.ranges(segment.base_offset, segment.base_offset + 1)


def epochs_of(log: Log, end_offset: int) -> tuple[EpochStart, ...]:
    """The leader epochs of a log below an offset."""
    return tuple(
        EpochStart(entry.epoch, entry.start_offset)
        for entry in log.leader_epochs.entries
        if entry.start_offset < end_offset
    )


def leader_log_of(log: Log) -> LeaderLog:
    """What a manifest is compared with when the leader of this log takes it over."""
    return LeaderLog(
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        leader_epochs=epochs_of(log, log.log_end_offset),
    )


def make_job(
    log: Log,
    candidate: Candidate,
    *,
    url: str,
    partition: RemotePartition,
    leader_epoch: int,
    now_ms: int,
    nonce: bytes,
    bytes_per_second: float,
    burst_s: float,
) -> CopyJob:
    """The job that copies a candidate.  Reads indexes.  Raises StorageError, CorruptLogError.

    A log that starts inside of the candidate is copied from the batch that holds its start: the
    leader epochs of the records before it may be forgotten.

    ``url`` is that of the store of the log; ``nonce`` has eight random bytes.
    """
    segment, first = candidate
    start = 0
    if first < log.log_start_offset:
        span = segment.locate(log.log_start_offset)
        if span is not None:
            first, start = span.base_offset, span.position
    elif first > segment.base_offset:
        span = segment.locate(first)
        if span is None or span.base_offset < first:
            position = 0 if span is None else span.position
            raise CorruptLogError(
                segment.log_path, position, f"no batch begins at {first}, where the bucket ends"
            )
        start = span.position
    files: dict[PartName, str] = {}
    if not start:
        files = {
            name: _file_name(segment.base_offset, suffix) for name, suffix in _SUFFIXES.items()
        }
    snapshot = log.snapshot_name(segment.next_offset)
    if snapshot is not None:
        files[PartName.PRODUCER_SNAPSHOT] = snapshot
    aborted: tuple[AbortedTxn, ...] = aborted_overlapping(log.segments, segment)
    return CopyJob(
        url=url,
        partition_dir=log.partition_dir,
        log_file=_file_name(segment.base_offset, ".log"),
        part_files=files,
        base_offset=first,
        next_offset=segment.next_offset,
        log_size=segment.size - start,
        start_position=start,
        index_interval_bytes=log.config.index_interval_bytes,
        gaps=log.gaps.is_set,
        leader_epochs=_epochs_from(first, epochs_of(log, segment.next_offset)),
        aborted=tuple(RemoteAbortedTxn(*txn[:3]) for txn in aborted if txn.last_offset >= first),
        folder=names.segments_folder(*partition),
        segment_id=names.segment_id(first, leader_epoch, now_ms, nonce),
        bytes_per_second=bytes_per_second,
        burst_s=burst_s,
    )


def copy_lag_bytes(partition: Partition) -> int:
    """Bytes of sealed segments that are to be in the bucket and are not."""
    if not partition.config.copies_segments:
        return 0
    log = partition.log
    return sum(s.size for s in log.segments[:-1] if s.next_offset > log.tiered_end_offset)


def _epochs_from(offset: int, epochs: tuple[EpochStart, ...]) -> tuple[EpochStart, ...]:
    """The epochs, the first of which may begin inside of the batch at ``offset``."""
    if not epochs or epochs[0].start_offset <= offset:
        return epochs
    return (EpochStart(epochs[0].epoch, offset), *epochs[1:])


def _file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"
