"""The events that the replica manager reports to replication and to coordinators.

Owns: the names of these events.  Must not know the reactions to them.
"""

from typing import Protocol

from sparklog.executors.log import Suspicion
from sparklog.executors.partition import Partition
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import TopicPartition


class ReplicationListener(Protocol):
    """Replication, as the replica manager sees it.  No method blocks for long or raises."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """The partition has taken another state than ``before``, or has dropped its role."""

    async def stop_fetching(self, topic_partition: TopicPartition) -> None:
        """Fetch nothing for this partition any more: its log is about to be closed."""

    def submit_alter_partition(self, topic_partition: TopicPartition) -> None:
        """The leader here proposes to shrink or to expand the ISR of this partition."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """The follower here can fetch again."""

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        """A segment of the partition's log may be damaged."""


class RoleListener(Protocol):
    """A coordinator, as the replica manager sees it.  No method blocks or raises."""

    def image_changed(self, image: ClusterImage) -> None:
        """Requests see this image from now on; the partitions do not follow it yet."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """The partition has taken another state than ``before``, or has dropped its role."""

    def config_changed(self, partition: Partition) -> None:
        """The partition has other settings."""

    def partition_closing(self, partition: Partition) -> None:
        """The log of the partition is about to be closed; nothing may use it any more."""


class ReplicationEvents:
    """Passes events to replication, if it is connected, and events of roles to coordinators.

    Without a listener, events are dropped.
    """

    def __init__(self) -> None:
        self._listener: ReplicationListener | None = None
        self._role_listeners: list[RoleListener] = []

    def connect(self, listener: ReplicationListener) -> None:
        self._listener = listener

    def add_role_listener(self, listener: RoleListener) -> None:
        """Report roles to this listener too, from the next change on."""
        self._role_listeners.append(listener)

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        if self._listener is not None:
            self._listener.role_changed(partition, before)
        for listener in self._role_listeners:
            listener.role_changed(partition, before)

    def image_changed(self, image: ClusterImage) -> None:
        for listener in self._role_listeners:
            listener.image_changed(image)

    def config_changed(self, partition: Partition) -> None:
        for listener in self._role_listeners:
            listener.config_changed(partition)

    async def partition_closing(self, partition: Partition) -> None:
        for listener in self._role_listeners:
            listener.partition_closing(partition)
        if self._listener is not None:
            await self._listener.stop_fetching(partition.topic_partition)

    def submit_alter_partition(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.submit_alter_partition(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        if self._listener is not None:
            self._listener.resume(topic_partition)

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        if self._listener is not None:
            self._listener.check_damage(topic_partition, suspicion)
