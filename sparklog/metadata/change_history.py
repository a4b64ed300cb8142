"""Which partitions the last commits touched, for those who follow an image and want to do no more
than what changed.

Owns: the answer, and how far back it goes.  Must not know what happened to a partition.
"""

from collections import deque
from collections.abc import Iterable

from sparklog.types import TopicPartition

#: Partitions that are remembered; who is further behind looks at all of them.
TOUCHED_MAX = 10_000


class ChangeHistory:
    """Of one image.  ``since`` is the version before which nothing is known."""

    __slots__ = ("_touched", "since")

    def __init__(self) -> None:
        self.since = 0
        self._touched: deque[tuple[int, TopicPartition]] = deque()

    def touch(self, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that commit ``version`` made, changed, configured or deleted."""
        touched = self._touched
        touched.extend((version, tp) for tp in partitions)
        while len(touched) > TOUCHED_MAX:
            self.since = touched.popleft()[0]

    def reset(self, version: int) -> None:
        """What came before this version is not known any more."""
        self._touched.clear()
        self.since = version

    def after(self, version: int) -> list[TopicPartition] | None:
        """The partitions that were touched after a version, each once; None when not known."""
        if version < self.since:
            return None
        found: dict[TopicPartition, None] = {}
        for touched_at, tp in reversed(self._touched):
            if touched_at <= version:
                break
            found[tp] = None
        return list(found)
