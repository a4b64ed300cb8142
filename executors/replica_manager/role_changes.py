"""Changes of settings and roles of the open partitions, as the image says.

Owns: the order in which a partition takes its settings and its role, and the events that follow.
Must not know what a partition does in its role, or how the image arrives.
"""

from collections.abc import Callable, Iterable

from sparklog.executors.partition import Effect, Partition
from sparklog.executors.replica_manager.bucket_recoveries import BucketRecoveries
from sparklog.executors.replica_manager.dynamic_config import DynamicConfig
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.listener import ReplicationEvents
from sparklog.executors.replica_manager.lost_replicas import LostReplicas
from sparklog.executors.replica_manager.truncations import Truncations
from sparklog.metadata import PartitionImage
from sparklog.types import TopicPartition


class RoleChanges:
    """``now_ms`` is the time of day; ``monotonic_ms`` measures how long ago something was."""

    def __init__(
        self,
        partitions: HostedPartitions,
        settings: DynamicConfig,
        truncations: Truncations,
        lost: LostReplicas,
        recoveries: BucketRecoveries,
        replication: ReplicationEvents,
        *,
        carry_out: Callable[[Iterable[Effect]], None],
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._truncations = truncations
        self._lost = lost
        self._recoveries = recoveries
        self._replication = replication
        self._carry_out = carry_out
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    async def update(self, tp: TopicPartition, state: PartitionImage, *, lead: bool) -> None:
        """Give the partition, if it is open, its settings and with ``lead`` its role."""
        partition = self._partitions.get(tp)
        if partition is not None and lead and partition.state is None:
            await self._truncations.truncate_torn_writes(partition, state.leader_epoch)
            partition = self._partitions.get(tp)  # its disk may have failed during the truncation
        if partition is None:
            return
        config = self._settings.of_topic(self._partitions.image, tp.topic)
        if config != partition.config:
            self._carry_out(partition.configure(config, self._now_ms()))
            self._replication.config_changed(partition)
        held = partition.state
        if lead and held is not state:
            if not await self._may_take_role(partition, state):
                return
            self._carry_out(partition.make_leader_or_follower(state, self._monotonic_ms()))
            self._recoveries.role_taken(partition)
            self._replication.role_changed(partition, held)
            self._lost.role_changed(partition)

    async def _may_take_role(self, partition: Partition, state: PartitionImage) -> bool:
        """Whether the role may be taken now; otherwise the partition drops the role that it has."""
        tp, held = partition.topic_partition, partition.state
        if self._recoveries.is_due(partition, state) and held is not None:
            self._carry_out(partition.drop_role())
            self._replication.role_changed(partition, held)
        may = await self._recoveries.may_take_role(partition, state)
        return may and self._partitions.get(tp) is partition

    def drop_all(self) -> None:
        """Drop the role of every partition, so that this broker serves none."""
        for partition in self._partitions:
            held = partition.state
            self._carry_out(partition.drop_role())
            self._replication.role_changed(partition, held)
