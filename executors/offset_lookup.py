"""Questions about offsets that the log of one partition answers alone.

Owns: what each timestamp of ListOffsets and each epoch of OffsetForLeaderEpoch means.  Must not
know roles, nor up to where a client may see.
"""

from sparklog.errors import CorruptLogError, DecodeError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import Steps
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
            return (yield from log.search_largest())
        return (yield from log.search_timestamp(timestamp))
    except (StorageError, CorruptLogError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    except DecodeError as error:
        # The client that sent it had made the CRC of what cannot be read.
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def end_of_epoch(log: Log, leader_epoch: int, epoch: int) -> tuple[int, int]:
    """The largest known epoch <= ``epoch`` and where it ends; -1 unknown.

    ``leader_epoch`` is the one that still goes on.
    """
    if epoch < 0:
        return NO_LEADER_EPOCH, NO_OFFSET
    if epoch == leader_epoch:
        return epoch, log.log_end_offset
    return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
