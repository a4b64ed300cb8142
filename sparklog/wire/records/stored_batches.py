"""The checks of the header of a stored batch.

Owns: the checks of one header by itself, against its neighbours, and against the leader epochs of
its log.  Must not know files or records.

The checksum of a batch leaves out base offset, length, leader epoch and magic.  The neighbours
confirm the first two: the offsets of a log without compaction have no gaps.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from sparklog.types import NO_LEADER_EPOCH, Compression
from sparklog.wire.records.batch import BATCH_OVERHEAD, COMPRESSION_MASK, MAGIC_V2, BatchHeader


class StartedEpoch(Protocol):
    """A leader epoch and the first offset that was written in it."""

    @property
    def epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...


def header_damage(header: BatchHeader, bytes_left: int) -> str | None:
    """The field of a header that is wrong whatever batch precedes; None without such a field."""
    if header.magic != MAGIC_V2:
        return f"magic is {header.magic}"
    if not BATCH_OVERHEAD <= header.size <= bytes_left:
        return f"batch length is {header.batch_length} with {bytes_left} bytes left"
    if header.last_offset_delta < 0 or header.base_offset < 0:
        return f"offsets are {header.base_offset} + {header.last_offset_delta}"
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        return f"attributes are {header.attributes:#06x}"
    return None


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


def epoch_of(epochs: Sequence[StartedEpoch], offset: int) -> int:
    """The leader epoch of an offset; -1 below the first known epoch.  The epochs ascend."""
    index = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return epochs[index - 1].epoch if index else NO_LEADER_EPOCH


def epoch_damage(header: BatchHeader, epochs: Sequence[StartedEpoch]) -> str | None:
    """The damage in the leader epoch of a batch; None for a right epoch."""
    expected = epoch_of(epochs, header.base_offset)
    if expected in (NO_LEADER_EPOCH, header.partition_leader_epoch):
        return None
    return f"leader epoch is {header.partition_leader_epoch} where {expected} wrote"
