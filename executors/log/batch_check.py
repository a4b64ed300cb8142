"""The checks of one stored batch.

Owns: the checks of one batch against its neighbours, its checksum and the leader epochs of its log.
Must not know files.

The checksum of a batch leaves out base offset, length, leader epoch and magic.  The neighbours
confirm the first two: the offsets of a log without compaction have no gaps.
"""

from bisect import bisect_right
from collections.abc import Sequence

from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.scan import header_damage
from sparklog.types import NO_LEADER_EPOCH
from sparklog.wire.records.batch import BatchHeader


def epoch_of(epochs: Sequence[EpochEntry], offset: int) -> int:
    """The leader epoch of an offset; -1 below the first known epoch."""
    index = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return epochs[index - 1].epoch if index else NO_LEADER_EPOCH


def placement_damage(
    header: BatchHeader, bytes_left: int, *, next_offset: int, end_offset: int
) -> str | None:
    """The damage in the length or the offsets of a batch; None for a sound batch.

    The batch must continue at ``next_offset``, and end at or below ``end_offset``, the end of the
    segment.  A gap before the batch is not judged.
    """
    damage = header_damage(header, bytes_left)
    if damage is not None:
        return damage
    if header.base_offset < next_offset:
        return f"base offset is {header.base_offset} where {next_offset} or more must follow"
    if header.next_offset > end_offset:
        return f"last offset is {header.last_offset} where the segment ends at {end_offset - 1}"
    return None


def epoch_damage(header: BatchHeader, epochs: Sequence[EpochEntry]) -> str | None:
    """The damage in the leader epoch of a batch; None for a right epoch."""
    expected = epoch_of(epochs, header.base_offset)
    if expected in (NO_LEADER_EPOCH, header.partition_leader_epoch):
        return None
    return f"leader epoch is {header.partition_leader_epoch} where {expected} wrote"
