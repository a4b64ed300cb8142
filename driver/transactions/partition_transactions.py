"""The open transactions of each partition, and whether a read can tell them from committed ones.

Owns: in which order transactions joined a partition, and which of them were open when the last
commit was decided there.  Must not know shards, records or offsets.

A transaction joins a partition before it writes there, and leaves it when its marker is written.
All records of a committed transaction were written before its commit was decided.  So a partition
is *settled* if each open transaction joined it after the last commit was decided there: then every
record of a committed transaction lies before the first record of each open transaction, which is
where the last stable offset stands.  In a partition that is not settled, a committed transaction
may have records behind the last stable offset.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparklog.types import TopicPartition


class Blocker(NamedTuple):
    """A transaction because of which a partition is not settled.

    ``joined_ms`` is the time of day in milliseconds.
    """

    transactional_id: str
    topic_partition: TopicPartition
    joined_ms: int


class _Joined(NamedTuple):
    """``commits`` is the number of commits that were decided before the transaction joined."""

    commits: int
    ms: int


class _Partition:
    """The open transactions in the order in which they joined; there is at least one."""

    __slots__ = ("last_commit", "open")

    def __init__(self) -> None:
        self.open: dict[str, _Joined] = {}
        self.last_commit = 0


class PartitionTransactions:
    """The open transactions of all shards, by partition."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._commits = 0

    def join(
        self, transactional_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> None:
        """The transaction may write to these partitions from now on."""
        joined = _Joined(self._commits, now_ms)
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is None:
                partition = self._partitions[tp] = _Partition()
            partition.open.setdefault(transactional_id, joined)

    def load(
        self, transactional_id: str, partitions: Iterable[TopicPartition], start_ms: int
    ) -> None:
        """A transaction of the log; which commits were decided before it joined is not known."""
        partitions = tuple(partitions)
        self.join(transactional_id, partitions, start_ms)
        self.decide_commit(partitions)

    def decide_commit(self, partitions: Iterable[TopicPartition]) -> None:
        """The commit of a transaction with these partitions is decided."""
        self._commits += 1
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.last_commit = self._commits

    def leave(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have the marker of the transaction, or are deleted."""
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.open.pop(transactional_id, None)
                if not partition.open:
                    del self._partitions[tp]

    def blocker(self, topic_partition: TopicPartition) -> Blocker | None:
        """The transaction that joined the partition first, if it is not settled; else None."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return None
        transactional_id, joined = next(iter(partition.open.items()))
        if joined.commits >= partition.last_commit:
            return None
        return Blocker(transactional_id, topic_partition, joined.ms)

    def blockers(self, partitions: Iterable[TopicPartition]) -> Iterator[Blocker]:
        """One blocker for each partition that is not settled."""
        return (found for tp in partitions if (found := self.blocker(tp)) is not None)

    def check_invariants(self) -> None:
        for partition in self._partitions.values():
            assert partition.open
            commits = [joined.commits for joined in partition.open.values()]
            assert commits == sorted(commits), commits
            assert partition.last_commit <= self._commits
