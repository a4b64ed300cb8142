"""Applying a cluster image to the partitions of one broker.

Owns: which partitions an image concerns, and the order of removing, opening and role changes.  Must
not know how each of these is done, or how the image arrives.
"""

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

from sparklog.executors.log_dirs import StrayDirs
from sparklog.executors.replica_manager.bucket_recoveries import BucketRecoveries
from sparklog.executors.replica_manager.delayed_operations import DelayedOperations
from sparklog.executors.replica_manager.dynamic_config import DynamicConfig
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.listener import ReplicationEvents
from sparklog.executors.replica_manager.partition_opener import PartitionOpener
from sparklog.executors.replica_manager.partition_remover import PartitionRemover
from sparklog.executors.replica_manager.role_changes import RoleChanges
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import TopicPartition


class ImageApplier:
    """Opens, closes and changes partitions as the image says; applies one image at a time."""

    def __init__(
        self,
        partitions: HostedPartitions,
        settings: DynamicConfig,
        *,
        opener: PartitionOpener,
        remover: PartitionRemover,
        roles: RoleChanges,
        strays: StrayDirs,
        delayed_operations: DelayedOperations,
        replication: ReplicationEvents,
        recoveries: BucketRecoveries,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._opener = opener
        self._remover = remover
        self._roles = roles
        self._strays = strays
        self._delayed_operations = delayed_operations
        self._replication = replication
        self._recoveries = recoveries
        #: The version of the image that was applied last, and the value of ``lead`` then.
        self._applied: tuple[int, bool] | None = None
        self._applying = asyncio.Lock()

    async def apply(self, image: ClusterImage, *, lead: bool) -> None:
        """See ``ReplicaManager.apply``."""
        if image is self._partitions.image:
            # Commits were replayed into the image that requests see, so no wait comes before this.
            self._replication.image_changed(image)
        async with self._applying:
            await self._apply(image, lead)

    async def open_again(self) -> bool:
        """See ``ReplicaManager.open_again``."""
        async with self._applying:
            before, image = len(self._partitions), self._partitions.image
            if self._applied != (image.version, True):
                return False
            here = image.partitions_of(self._partitions.node_id)
            unopened = [tp for tp in self._opener.unopened if tp in here]
            topic_ids = {tp: self._partitions.topic_id(tp.topic) for tp in unopened}
            for tp, topic_id in topic_ids.items():
                await self._strays.remove_one(tp, topic_id)
            image = self._partitions.image
            failed = self._partitions.failed
            due = (
                self._opener.unopened
                or failed.replaceable(image)
                or self._remover.given_up()
                or self._recoveries.answered
            )
            if not due or self._applied != (image.version, True):
                return False
            await self._apply(image, lead=True)
            return len(self._partitions) > before

    async def _apply(self, image: ClusterImage, lead: bool) -> None:
        partitions = self._partitions
        is_another = image is not partitions.image
        version, partitions.image = image.version, image
        self._replication.image_changed(image)
        touched, hosted = self._touched(image, lead), image.partitions_of(partitions.node_id)
        wanted = {tp: (partitions.topic_id(tp.topic), hosted[tp]) for tp in touched if tp in hosted}
        await self._remover.remove(self._gone(touched, wanted), keep=is_another)
        if lead:
            await self._remover.replace_lost_logs(self._settings.broker)
        known = {*partitions.names(), *partitions.failed}
        missing = [(tp, topic_id) for tp, (topic_id, _) in wanted.items() if tp not in known]
        await self._opener.open_all(missing, lead=lead)
        for tp, (_, state) in wanted.items():
            await self._roles.update(tp, state, lead=lead)
        # Delayed DeleteRecords do not wait for brokers that are fenced.
        self._delayed_operations.delete_records.check_and_complete_all()
        self._applied = (version, lead)

    def _touched(self, image: ClusterImage, lead: bool) -> Iterable[TopicPartition]:
        """The partitions that the image may change, each of them once."""
        config = self._settings.broker
        self._settings.follow(image)
        unopened, partitions = self._opener.take_unopened(), self._partitions
        applied = self._applied
        if applied is not None and applied[1] == lead and self._settings.broker is config:
            touched = image.touched_after(applied[0])
            if touched is not None:
                waiting = self._recoveries.waiting
                return dict.fromkeys((*touched, *unopened, *partitions.failed, *waiting))
        hosted = image.partitions_of(partitions.node_id)
        return dict.fromkeys((*partitions.names(), *partitions.failed, *hosted))

    def _gone(
        self,
        touched: Iterable[TopicPartition],
        wanted: Mapping[TopicPartition, tuple[UUID, PartitionImage]],
    ) -> list[TopicPartition]:
        """The replicas here whose partition was deleted, moved or made anew."""
        gone: list[TopicPartition] = []
        for tp in touched:
            replica = self._partitions.get(tp) or self._partitions.failed.get(tp)
            here = replica and replica.topic_id
            if here is not None and (tp not in wanted or wanted[tp][0] != here):
                gone.append(tp)
        return gone
