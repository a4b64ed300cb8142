"""The growth of partitions while fetches read many of them in slices.

Owns: the bytes that each partition got during such reads.  Must not know fetches, sessions or logs.

A read in slices sees each partition at another moment.  Before the fetch waits in the purgatory, it
asks here whether a partition has changed since it was read; no other event would wake the fetch.
"""

from typing import Final

from sparklog.types import TopicPartition

#: Stands for a change without bytes, of a role for example: fetches always look at it.
_ALWAYS_ENOUGH: Final = 2**40


class RecentGrowth:
    """Counts between ``begin`` and ``end`` only.  Several reads may overlap."""

    def __init__(self) -> None:
        self._reads = 0
        self._bytes: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        self._reads += 1

    def end(self) -> None:
        self._reads -= 1
        if not self._reads:
            self._bytes.clear()

    def add(self, topic_partition: TopicPartition, size: int) -> None:
        """A partition changed, and got ``size`` bytes."""
        if self._reads:
            self._bytes[topic_partition] = self.of(topic_partition) + (size or _ALWAYS_ENOUGH)

    def of(self, topic_partition: TopicPartition) -> int:
        """A number that grows with each change."""
        return self._bytes.get(topic_partition, 0)
