"""An index of partitions by broker: its replicas, its leaderships, its preferred leaderships.

Owns: the index, updated partition by partition.  Must not know records, topics or why a partition
changes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sparklog.metadata.values import PartitionImage
from sparklog.types import NO_NODE, TopicPartition

_Partitions = dict[TopicPartition, PartitionImage]


class ReplicaIndex:
    """An image's partitions by broker.  Leaderless partitions count as led by ``NO_NODE``."""

    __slots__ = ("_hosted", "_led", "_seconds", "size")

    def __init__(self) -> None:
        #: The number of all partitions.
        self.size = 0
        self._hosted: defaultdict[int, _Partitions] = defaultdict(dict)
        self._led: defaultdict[int, _Partitions] = defaultdict(dict)
        self._seconds: dict[int, Counter[int]] = {}

    def change(
        self, tp: TopicPartition, before: PartitionImage | None, after: PartitionImage | None
    ) -> None:
        """A partition was created (``before`` None), changed, or deleted (``after`` None)."""
        if before is not None:
            kept = () if after is None else after.replicas
            for broker_id in before.replicas:
                if broker_id not in kept:
                    _drop(self._hosted, broker_id, tp)
            if after is None or after.leader != before.leader:
                _drop(self._led, before.leader, tp)
            self.size -= 1
        if after is not None:
            for broker_id in after.replicas:
                self._hosted[broker_id][tp] = after
            self._led[after.leader][tp] = after
            self.size += 1
        self._count_seconds(before, after)

    def hosted(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that have a replica on a broker."""
        return self._hosted.get(broker_id, {})

    def led(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that a broker leads."""
        return self._led.get(broker_id, {})

    def second_replica_counts(self, broker_id: int) -> Mapping[int, int]:
        """By second replica, the number of partitions whose preferred leader is this broker.

        Partitions with one replica count for ``NO_NODE``.
        """
        return self._seconds.get(broker_id, {})

    def check_invariants(self, partitions: Iterator[tuple[TopicPartition, PartitionImage]]) -> None:
        """Assert that this is the index of exactly these partitions."""
        fresh = ReplicaIndex()
        for tp, state in partitions:
            fresh.change(tp, None, state)
        assert self._hosted == fresh._hosted, (self._hosted, fresh._hosted)
        assert self._led == fresh._led, (self._led, fresh._led)
        assert self._seconds == fresh._seconds, (self._seconds, fresh._seconds)
        assert self.size == fresh.size, (self.size, fresh.size)

    def _count_seconds(self, before: PartitionImage | None, after: PartitionImage | None) -> None:
        if before is not None and after is not None and before.replicas == after.replicas:
            return
        if before is not None:
            leader, second = before.replicas[0], second_replica(before.replicas)
            counts = self._seconds[leader]
            counts[second] -= 1
            if not counts[second]:
                del counts[second]
            if not counts:
                del self._seconds[leader]
        if after is not None:
            counts = self._seconds.setdefault(after.replicas[0], Counter())
            counts[second_replica(after.replicas)] += 1


def second_replica(replicas: tuple[int, ...]) -> int:
    """The replica that leads if the preferred leader cannot; ``NO_NODE`` for a single replica."""
    return replicas[1] if len(replicas) > 1 else NO_NODE


def _drop(by_broker: dict[int, _Partitions], broker_id: int, tp: TopicPartition) -> None:
    partitions = by_broker[broker_id]
    del partitions[tp]
    if not partitions:
        del by_broker[broker_id]
