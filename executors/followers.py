"""What a leader knows of the other replicas of its partition, from their fetches.

Owns: how far each log reaches and where it starts.  Must not know what follows from it.
"""

from collections.abc import Iterable

from sparklog.types import NO_OFFSET


class Followers:
    """Of one partition in one leader epoch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def clear(self) -> None:
        """A new epoch: nothing is known."""
        self._ends.clear()
        self._starts.clear()

    def record(self, replica_id: int, end_offset: int, log_start_offset: int) -> bool:
        """A fetch has told where a log ends and starts; whether its start is news."""
        self._ends[replica_id] = end_offset
        known = self._starts.get(replica_id, NO_OFFSET)
        self._starts[replica_id] = log_start_offset
        return known != log_start_offset

    def ends(self, replica_ids: Iterable[int]) -> list[int]:
        """0 of those that have not fetched."""
        return [self._ends.get(replica_id, 0) for replica_id in replica_ids]

    def starts(self, replica_ids: Iterable[int]) -> list[int]:
        """-1 of those that have not fetched."""
        return [self._starts.get(replica_id, NO_OFFSET) for replica_id in replica_ids]
