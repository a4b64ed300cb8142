"""The growth of partitions during reads in slices.

Owns: the bytes that became readable in each partition while fetches read.  Must not know fetches,
sessions or logs.

A fetch of many partitions reads them in slices, and other work runs between the slices.  Records
may be appended to a partition after the fetch has read it and before the fetch waits in the
purgatory; no later effect completes the fetch for them.  So the fetch compares the growth of each
partition with the growth at the time of its read before it waits.
"""

from typing import Final

from sparklog.types import TopicPartition

#: Counts for a change without bytes, a change of role for example: it completes every fetch.
_ALWAYS_ENOUGH: Final = 2**40


class GrowthDuringReads:
    """Counts the growth of partitions while at least one read runs.  Reads may overlap."""

    def __init__(self) -> None:
        self._reads = 0
        self._bytes: dict[TopicPartition, int] = {}

    def begin_read(self) -> None:
        self._reads += 1

    def end_read(self) -> None:
        """End one read; after the last read all counts are dropped."""
        self._reads -= 1
        if not self._reads:
            self._bytes.clear()

    def add(self, topic_partition: TopicPartition, size: int) -> None:
        """Count ``size`` more readable bytes of a partition; 0 stands for another change."""
        if self._reads:
            self._bytes[topic_partition] = self.of(topic_partition) + (size or _ALWAYS_ENOUGH)

    def of(self, topic_partition: TopicPartition) -> int:
        """The growth of a partition in bytes so far; only differences have a meaning."""
        return self._bytes.get(topic_partition, 0)
