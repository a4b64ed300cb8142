"""The partitions of which one broker has a replica: the open ones and the failed ones.

Owns: the open partitions by name, the failed logs, the image that both follow, and the error for a
partition that is not here.  Must not know how a log is opened, or how the image arrives.
"""

from collections.abc import Callable, Iterator
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.failed_logs import FailedLogs
from sparklog.metadata import ClusterImage
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private import OfflineReplica


class HostedPartitions:
    """The partitions of broker ``node_id``; iteration gives the open ones."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        #: The cluster image that was applied last.
        self.image = ClusterImage()
        self.failed = FailedLogs(node_id)
        self._open: dict[TopicPartition, Partition] = {}
        #: The open partition of this name, or None.  The dictionary's own method: every request
        #: calls it.
        self.get: Callable[[TopicPartition], Partition | None] = self._open.get

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def names(self) -> Iterator[TopicPartition]:
        """The names of the open partitions."""
        return iter(tuple(self._open))

    def add(self, partition: Partition) -> None:
        self._open[partition.topic_partition] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        return self._open.pop(topic_partition, None)

    @property
    def offline(self) -> dict[TopicPartition, SparklogError]:
        """The replicas that do not work, and the reasons."""
        unusable = {p.topic_partition: p.log.offline for p in self if p.log.offline is not None}
        return {**unusable, **self.failed.errors()}

    def offline_replicas(self) -> tuple[OfflineReplica, ...]:
        """The replicas that do not work, as every heartbeat and registration reports them."""
        topics = ((tp, self.image.topic(tp.topic)) for tp in self.offline)
        return tuple(
            OfflineReplica(
                topic_id=topic.topic_id,
                partition=tp.partition,
                lost=self.failed.is_lost(tp),
                gone=self.failed.is_gone(tp),
            )
            for tp, topic in topics
            if topic is not None
        )

    def missing_error(self, topic_partition: TopicPartition) -> KafkaError:
        """The error that Kafka answers for a partition that is not open here."""
        failed = self.failed.get(topic_partition)
        if failed is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failed.error))
        if self.image.partition(topic_partition) is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
            )
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.node_id} has no replica of {topic_partition}",
        )

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic that the image has."""
        found = self.image.topic(topic)
        assert found is not None
        return found.topic_id
