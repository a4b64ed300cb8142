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


class NoReplicationListener:
    """For a table that stands alone."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        del partition, before

    async def let_go(self, topic_partition: TopicPartition) -> None:
        del topic_partition

    def propose(self, topic_partition: TopicPartition) -> None:
        del topic_partition

    def resume(self, topic_partition: TopicPartition) -> None:
        del topic_partition

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        del topic_partition, suspicion
