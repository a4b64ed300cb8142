"""The folders on a broker's disks that belong to no partition of the image.

Owns: finding them and setting them aside.  Must not know open logs: whoever calls does so for
partitions that are not open.

No stray folder is deleted, as in Kafka: the folder of a topic that was deleted while its broker was
away looks like the folder of a topic that a restored or repaired journal has lost.  The operator
deletes folders whose names end in ``-stray``.  Only folders whose deletion had begun are deleted.
"""

import logging
from collections.abc import Collection
from uuid import UUID

from sparklog.errors import StorageError
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.checkpoints import LogCheckpoints
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.executors.log_dirs.partition_dirs import (
    belongs_to_another,
    find_strays,
    is_half_deleted,
    parse_folder,
    set_aside,
)
from sparklog.metadata import ClusterImage
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class StrayDirs:
    """Of one broker.  Its images must be of controllers that are known to be in office: one that
    was replaced could lack topics."""

    def __init__(self, node_id: int, folders: LogDirs, checkpoints: LogCheckpoints) -> None:
        self._node_id = node_id
        self._folders = folders
        self._checkpoints = checkpoints

    async def remove_all(self, image: ClusterImage) -> list[str]:
        """Set aside the folders of partitions that the image does not place here; their names.

        The checkpoints forget these partitions, those without a folder too: a new partition of the
        same name is not to be taken for a lost one.  Raises StorageError.
        """
        strays = [
            (folder, name)
            for folder in self._folders
            for name in await run_blocking(find_strays, folder, image, self._node_id)
        ]
        await self.remove(strays)
        here = image.partitions_of(self._node_id)
        noted = {tp for f in self._folders for tp in (*f.recovery_points, *f.log_starts)}
        vanished = sorted(noted - set(here))
        for tp in vanished:
            self._folders.forget(tp)
        if vanished:
            await self._checkpoints.write()
        return [name for _, name in strays]

    async def remove_one(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Set aside the folder that has a partition's name, if it is not of the topic with this
        id."""
        folder, name = self._folders.find(tp), str(tp)
        if folder is None or folder not in self._folders.working:
            return
        try:
            if await run_blocking(belongs_to_another, folder.half, folder.path, name, topic_id):
                await self.remove([(folder, name)])
        except StorageError as error:
            logger.error("the stray folder %s/%s stays: %s", folder.location, name, error)
            self._folders.remember(tp, folder)

    async def remove(self, strays: Collection[tuple[BrokerDir, str]]) -> None:
        """Set folders aside.  A partition of the same name must not inherit recovery points."""
        for _, name in strays:
            tp = parse_folder(name)
            if tp is not None:
                self._folders.forget(tp)
        if strays:
            await self._checkpoints.write()
        for folder, name in strays:
            if is_half_deleted(name):
                logger.info("deleting %s/%s, as was begun", folder.location, name)
                await run_blocking(folder.half.remove_folder, f"{folder.path}/{name}")
                continue
            if not await run_blocking(folder.half.is_folder, f"{folder.path}/{name}"):
                continue
            target = await run_blocking(set_aside, folder.half, folder.path, name)
            logger.warning(
                "%s/%s is of no partition that the cluster places here; it is kept as %s, and can "
                "be deleted if its topic was",
                folder.location,
                name,
                target,
            )
