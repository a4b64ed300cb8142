"""What partitions got while fetches look at many of them in slices.

Owns: the bytes of each partition that came during such looks.  Must not know fetches, sessions or
logs.

A look in slices sees each partition at another moment.  Before its fetch is parked, the fetch asks
here whether a partition has changed since the fetch looked at it; nothing else would wake it.
"""

from typing import Final

from sparklog.types import TopicPartition

#: Stands for a change that comes without bytes, of a role for example: it is always worth a look.
_ALWAYS_ENOUGH: Final = 2**40


class RecentGrowth:
    """Counts only between ``begin`` and ``end``, of which there may be several at once."""

    def __init__(self) -> None:
        self._looks = 0
        self._bytes: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        self._looks += 1

    def end(self) -> None:
        self._looks -= 1
        if not self._looks:
            self._bytes.clear()

    def add(self, topic_partition: TopicPartition, size: int) -> None:
        """A partition changed; ``size`` bytes came with that."""
        if self._looks:
            self._bytes[topic_partition] = self.of(topic_partition) + (size or _ALWAYS_ENOUGH)

    def of(self, topic_partition: TopicPartition) -> int:
        """A number that grows with each change."""
        return self._bytes.get(topic_partition, 0)
