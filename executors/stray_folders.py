"""The folders on a broker's disks that belong to no partition of the image.

Owns: finding and deleting them.  Must not know open logs: whoever calls does so for partitions that
are not open.
"""

import logging
from collections.abc import Collection
from uuid import UUID

from sparklog.errors import StorageError
from sparklog.executors.broker_folder import BrokerFolder
from sparklog.executors.log_checkpoints import LogCheckpoints
from sparklog.executors.log_folders import LogFolders
from sparklog.executors.partition_folders import (
    belongs_to_another,
    delete_stray,
    find_strays,
    parse_folder,
)
from sparklog.metadata import ClusterImage
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class StrayFolders:
    """Of one broker.  Its images must be of controllers that are known to be in office: one that
    was replaced could lack topics."""

    def __init__(self, node_id: int, folders: LogFolders, checkpoints: LogCheckpoints) -> None:
        self._node_id = node_id
        self._folders = folders
        self._checkpoints = checkpoints

    async def remove_all(self, image: ClusterImage) -> list[str]:
        """Delete the folders of partitions that the image does not place here; their names.

        Raises StorageError.
        """
        strays = [
            (folder, name)
            for folder in self._folders
            for name in await run_blocking(find_strays, folder, image, self._node_id)
        ]
        await self._delete(strays)
        return [name for _, name in strays]

    async def remove_one(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Delete the folder that has a partition's name, if it is not of the topic with this id."""
        folder, name = self._folders.find(tp), str(tp)
        if folder is None or folder not in self._folders.working:
            return
        try:
            if await run_blocking(belongs_to_another, folder.half, folder.path, name, topic_id):
                await self._delete([(folder, name)])
        except StorageError as error:
            logger.error("the stray folder %s/%s stays: %s", folder.location, name, error)
            self._folders.remember(tp, folder)

    async def _delete(self, strays: Collection[tuple[BrokerFolder, str]]) -> None:
        """A partition of the same name must not inherit recovery points."""
        for _, name in strays:
            tp = parse_folder(name)
            if tp is not None:
                self._folders.forget(tp)
        if strays:
            await self._checkpoints.write()
        for folder, name in strays:
            logger.warning("removing the stray folder %s/%s", folder.location, name)
            await run_blocking(delete_stray, folder.half, folder.path, name)
