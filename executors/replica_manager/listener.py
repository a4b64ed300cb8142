"""What the table of partitions tells whoever makes its replicas follow and stay in sync.

Owns: the names of these events.  Must not know what is done about them.
"""

from typing import Protocol

from sparklog.executors.log import Suspicion
from sparklog.executors.partition import Partition
from sparklog.metadata import PartitionImage
from sparklog.types import TopicPartition


class ReplicationListener(Protocol):
    """What is called never blocks or raises."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """A partition has taken another state, or resigned."""

    async def let_go(self, topic_partition: TopicPartition) -> None:
        """A partition is about to be closed: nothing is done to its log afterwards."""

    def propose(self, topic_partition: TopicPartition) -> None:
        """A leader wants other in-sync replicas."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """A follower can fetch, which could not."""

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        """A segment may be damaged."""


class ReplicationEvents:
    """Hands each event to the listener that was connected; without one, events are dropped."""

    def __init__(self) -> None:
        self._listener: ReplicationListener | None = None

    def connect(self, listener: ReplicationListener) -> None:
        self._listener = listener

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        if self._listener is not None:
            self._listener.role_changed(partition, before)

    async def let_go(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            await self._listener.let_go(topic_partition)

    def propose(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.propose(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.resume(topic_partition)

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        if self._listener is not None:
            self._listener.check_damage(topic_partition, suspicion)
