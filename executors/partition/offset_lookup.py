"""Questions about offsets that the log of one partition answers alone.

Owns: what each timestamp of ListOffsets and each epoch of OffsetForLeaderEpoch means.  Must not
know roles, nor up to where a client may see.
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
    """What a timestamp other than LATEST stands for in the whole log; None: nothing.

    Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
    """
    if timestamp in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
        start = log.log_start_offset
        return OffsetTimestamp(offset=start, leader_epoch=log.leader_epochs.epoch_at(start))
    if timestamp < OffsetSpec.EARLIEST_LOCAL:
        return None  # about tiered segments, and there are none
    try:
        if timestamp == OffsetSpec.MAX_TIMESTAMP:
            return (yield from log.times.largest())
        return (yield from log.times.first_from(timestamp))
    except (StorageError, CorruptLogError) as error:
        raise KafkaError(read_error_code(log, error), str(error)) from error


def read_error_code(log: Log, error: Exception) -> ErrorCode:
    """What a client is told when a read of the log fails.

    Java's consumer and librdkafka try again without a word after KAFKA_STORAGE_ERROR, and tell
    their application of CORRUPT_MESSAGE.  So the first is for what may be mended in a moment, the
    second for a damaged range of which no other replica had the bytes.
    """
    if isinstance(error, DamagedRangeError) and log.damage.is_final(error):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.KAFKA_STORAGE_ERROR


def find_divergence(
    log: Log, leader_epoch: int, last_fetched_epoch: int, offset: int
) -> EpochEnd | None:
    """Where somebody's log leaves this one, whose record before ``offset`` is of that epoch.

    None: it is a part of this one.  An epoch that this log's leader never heard of is one of a
    foreign log, and leaves it, at the latest, where this log ends.
    """
    end = EpochEnd(*end_of_epoch(log, leader_epoch, last_fetched_epoch))
    if end.epoch == NO_LEADER_EPOCH:
        return EpochEnd(log.leader_epochs.latest_epoch, log.log_end_offset)
    diverges = end.epoch < last_fetched_epoch or end.end_offset < offset
    return end if diverges else None


def has_forgotten(log: Log, last_fetched_epoch: int, offset: int) -> bool:
    """Whether this log, which starts at ``offset``, cannot tell if another one led up to it.

    What that holds of an older epoch may have been overwritten here before it was deleted; its
    transactions would then stay open for good.
    """
    epochs = log.leader_epochs
    unknown = offset == log.log_start_offset and epochs.epoch_at(offset - 1) == NO_LEADER_EPOCH
    return unknown and 0 <= last_fetched_epoch < epochs.epoch_at(offset)


def end_of_epoch(log: Log, leader_epoch: int, epoch: int) -> tuple[int, int]:
    """The largest known epoch <= ``epoch`` and where it ends; -1 unknown.

    ``leader_epoch`` is the one that still goes on.
    """
    if epoch < 0:
        return NO_LEADER_EPOCH, NO_OFFSET
    if epoch == leader_epoch:
        return epoch, log.log_end_offset
    return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
