"""Which partitions each broker has a replica of, and which it leads.

Owns: both answers, kept up to date partition by partition.  Must not know records, topics or why a
partition changes.
"""

from collections.abc import Iterator, Mapping

from sparklog.metadata.values import PartitionImage
from sparklog.types import TopicPartition

_Partitions = dict[TopicPartition, PartitionImage]


class ReplicaIndex:
    """An image's partitions by broker.  Those without a leader are led by ``NO_NODE``."""

    __slots__ = ("_hosted", "_led", "size")

    def __init__(self) -> None:
        #: Partitions of all brokers.
        self.size = 0
        self._hosted: dict[int, _Partitions] = {}
        self._led: dict[int, _Partitions] = {}

    def change(
        self, tp: TopicPartition, before: PartitionImage | None, after: PartitionImage | None
    ) -> None:
        """A partition is new (``before`` None), another one, or gone (``after`` None)."""
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
                self._hosted.setdefault(broker_id, {})[tp] = after
            self._led.setdefault(after.leader, {})[tp] = after
            self.size += 1

    def hosted(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that have a replica on a broker."""
        return self._hosted.get(broker_id, {})

    def led(self, broker_id: int) -> Mapping[TopicPartition, PartitionImage]:
        """The partitions that a broker leads."""
        return self._led.get(broker_id, {})

    def check_invariants(self, partitions: Iterator[tuple[TopicPartition, PartitionImage]]) -> None:
        """Assert that this is the index of exactly these partitions."""
        fresh = ReplicaIndex()
        for tp, state in partitions:
            fresh.change(tp, None, state)
        assert self._hosted == fresh._hosted, (self._hosted, fresh._hosted)
        assert self._led == fresh._led, (self._led, fresh._led)
        assert self.size == fresh.size, (self.size, fresh.size)


def _drop(by_broker: dict[int, _Partitions], broker_id: int, tp: TopicPartition) -> None:
    partitions = by_broker[broker_id]
    del partitions[tp]
    if not partitions:
        del by_broker[broker_id]
