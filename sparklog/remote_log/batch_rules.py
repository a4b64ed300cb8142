"""The rules for a batch of a copied segment.

Owns: what the header of a batch must say at its place in a segment.  Must not know where the bytes
come from.

The checksum of a batch does not cover its base offset and its leader epoch.  The batch before it
proves the base offset, in a segment without gaps, and the epochs of the segment prove the epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.remote_log.remote_segment import EpochStart
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.stored_batches import epoch_damage, placement_damage


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """The rules of one segment, which ends at ``end_offset`` and has ``log_size`` bytes.

    With ``gaps``, offsets may be missing before a batch.
    """

    end_offset: int
    log_size: int
    leader_epochs: Sequence[EpochStart]
    gaps: bool

    def damage(self, header: BatchHeader, position: int, next_offset: int) -> str | None:
        """The damage in the header at ``position``, where ``next_offset`` must follow; or None."""
        left = self.log_size - position
        damage = placement_damage(
            header, left, next_offset=next_offset, end_offset=self.end_offset
        ) or epoch_damage(header, self.leader_epochs)
        if damage is not None:
            return damage
        if header.base_offset > next_offset and not self.gaps:
            return f"base offset is {header.base_offset} where {next_offset} must follow"
        if header.size == left and header.next_offset != self.end_offset:
            return f"the last offset is {header.last_offset} where {self.end_offset - 1} is due"
        return None
