"""The partitions that the last commits have changed, for nodes that apply an image incrementally.

Owns: these partitions, and how far back they are known.  Must not know what a change was.
"""

from collections import deque
from collections.abc import Iterable

from sparklog.types import TopicPartition

#: Most changes that are remembered; a follower that is further behind applies all partitions.
TOUCHED_MAX = 10_000


class ChangeHistory:
    """The change history of one image.  Changes before version ``since`` are not known."""

    __slots__ = ("_touched", "since")

    def __init__(self) -> None:
        self.since = 0
        self._touched: deque[tuple[int, TopicPartition]] = deque()

    def touch(self, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that commit ``version`` created, changed, configured or deleted."""
        touched = self._touched
        touched.extend((version, tp) for tp in partitions)
        while len(touched) > TOUCHED_MAX:
            self.since = touched.popleft()[0]

    def reset(self, version: int) -> None:
        """Forget all changes up to this version."""
        self._touched.clear()
        self.since = version

    def after(self, version: int) -> list[TopicPartition] | None:
        """The partitions that were touched after a version, each once; None if that is unknown."""
        if version < self.since:
            return None
        found: dict[TopicPartition, None] = {}
        for touched_at, tp in reversed(self._touched):
            if touched_at <= version:
                break
            found[tp] = None
        return list(found)
