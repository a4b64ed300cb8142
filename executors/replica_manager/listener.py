"""The events that the replica manager reports to replication.

Owns: the names of these events.  Must not know what is done about them.
"""

from typing import Protocol

from sparklog.executors.log import Suspicion
from sparklog.executors.partition import Partition
from sparklog.metadata import PartitionImage
from sparklog.types import TopicPartition


class ReplicationListener(Protocol):
    """Replication, as the replica manager sees it.  No method blocks for long or raises."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """The partition has taken another state than ``before``, or resigned."""

    async def stop_fetching(self, topic_partition: TopicPartition) -> None:
        """Fetch nothing for this partition any more: its log is about to be closed."""

    def propose(self, topic_partition: TopicPartition) -> None:
        """The leader here wants another ISR."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """The follower here can fetch again."""

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        """A segment of the partition's log may be damaged."""


class ReplicationEvents:
    """Hands each event to the listener that was connected; without one, events are dropped."""

    def __init__(self) -> None:
        self._listener: ReplicationListener | None = None

    def connect(self, listener: ReplicationListener) -> None:
        self._listener = listener

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        if self._listener is not None:
            self._listener.role_changed(partition, before)

    async def stop_fetching(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            await self._listener.stop_fetching(topic_partition)

    def propose(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.propose(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.resume(topic_partition)

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        if self._listener is not None:
            self._listener.check_damage(topic_partition, suspicion)
