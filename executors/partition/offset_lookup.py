"""Lookups of offsets in the log of one partition.

Owns: the meaning of each timestamp of ListOffsets and each epoch of OffsetForLeaderEpoch.  Must not
know roles, or how far a client may read.
"""

from sparklog.errors import (
    CorruptLogError,
    DamagedRangeError,
    ErrorCode,
    KafkaError,
    StorageError,
)
from sparklog.executors.log import Log, Steps
from sparklog.executors.partition.results import (
    EpochEnd,
)
from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET, OffsetSpec, OffsetTimestamp


def look_up(log: Log, timestamp: int) -> Steps[OffsetTimestamp | None]:
    """The offset in the whole log for a timestamp other than LATEST, or None.

    Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
    """
    if timestamp in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
        is_local = timestamp == OffsetSpec.EARLIEST_LOCAL
        start = log.local_log_start_offset if is_local else log.log_start_offset
        return OffsetTimestamp(offset=start, leader_epoch=log.leader_epochs.epoch_at(start))
    if timestamp < OffsetSpec.EARLIEST_LOCAL:
        return _end_of_tiered(log, timestamp)
    try:
        if timestamp == OffsetSpec.MAX_TIMESTAMP:
            return (yield from log.times.largest())
        return (yield from log.times.first_from(timestamp))
    except (StorageError, CorruptLogError) as error:
        raise KafkaError(read_error_code(log, error), str(error)) from error


def _end_of_tiered(log: Log, timestamp: int) -> OffsetTimestamp | None:
    """The last offset in the bucket, or the first one that is not there yet; None for a log that is
    not tiered (KIP-1005, KIP-1023)."""
    if not log.config.remote_storage_enable:
        return None
    end = max(log.tiered_end_offset, log.log_start_offset)
    if timestamp == OffsetSpec.EARLIEST_PENDING_UPLOAD:
        return OffsetTimestamp(offset=end, leader_epoch=log.leader_epochs.epoch_at(end))
    if log.tiered_end_offset <= log.log_start_offset:
        return None
    last = log.tiered_end_offset - 1
    return OffsetTimestamp(offset=last, leader_epoch=log.leader_epochs.epoch_at(last))


def read_error_code(log: Log, error: Exception) -> ErrorCode:
    """The error code for a client after a failed read of the log.

    Java's consumer and librdkafka retry silently after KAFKA_STORAGE_ERROR, and report
    CORRUPT_MESSAGE to the application.  So the first is for damage that may be repaired soon, the
    second for a damaged range that no other replica could repair.
    """
    if isinstance(error, DamagedRangeError) and log.damage.is_unrepairable(error):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.KAFKA_STORAGE_ERROR


def find_divergence(
    log: Log, leader_epoch: int, last_fetched_epoch: int, offset: int
) -> EpochEnd | None:
    """The point where a reader's log diverges from this log; None if it does not diverge.

    The reader's record before ``offset`` is of ``last_fetched_epoch``.  A log with an epoch that
    this leader does not know diverges, at the latest, at the end of this log.
    """
    end = EpochEnd(*end_of_epoch(log, leader_epoch, last_fetched_epoch))
    if end.epoch == NO_LEADER_EPOCH:
        return EpochEnd(log.leader_epochs.latest_epoch, log.log_end_offset)
    diverges = end.epoch < last_fetched_epoch or end.end_offset < offset
    return end if diverges else None


def has_forgotten(log: Log, last_fetched_epoch: int, offset: int) -> bool:
    """Whether this log starts at ``offset`` and cannot check a reader's records before it.

    Records of an older epoch may have been overwritten here before they were deleted.  The reader
    would then keep their transactions open for good.
    """
    epochs = log.leader_epochs
    unknown = offset == log.log_start_offset and epochs.epoch_at(offset - 1) == NO_LEADER_EPOCH
    return unknown and 0 <= last_fetched_epoch < epochs.epoch_at(offset)


def end_of_epoch(log: Log, leader_epoch: int, epoch: int) -> tuple[int, int]:
    """The largest known epoch <= ``epoch`` and where it ends; -1 unknown.

    ``leader_epoch`` is the current leader epoch.
    """
    if epoch < 0:
        return NO_LEADER_EPOCH, NO_OFFSET
    if epoch == leader_epoch:
        return epoch, log.log_end_offset
    return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
