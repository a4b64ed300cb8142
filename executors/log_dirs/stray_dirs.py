"""Stray directories: directories in the log directories that belong to no partition of the image.

Owns: the search for stray directories, and their renaming.  Must not know open logs: callers name
only partitions that are not open.

No stray directory is deleted, as in Kafka: the directory of a topic that was deleted while its
broker was away looks like the directory of a topic that a restored or repaired journal has lost.
The operator deletes directories whose names end in ``-stray``.  Only a directory whose deletion had
begun is deleted.
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
    find_stray_dirs,
    is_half_deleted,
    parse_partition_dir,
    rename_stray_dir,
)
from sparklog.metadata import ClusterImage
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class StrayDirs:
    """The stray directories of one broker.

    Images must come from the active controller: the image of a replaced controller could lack
    topics.
    """

    def __init__(self, node_id: int, log_dirs: LogDirs, checkpoints: LogCheckpoints) -> None:
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._checkpoints = checkpoints

    async def remove_all(self, image: ClusterImage) -> list[str]:
        """Rename the directories of partitions that the image does not place here.

        The checkpoints forget these partitions, with or without a directory, so that a new
        partition of the same name does not count as lost.  Returns the old names.  Raises
        StorageError.
        """
        strays = [
            (log_dir, name)
            for log_dir in self._log_dirs
            for name in await run_blocking(find_stray_dirs, log_dir, image, self._node_id)
        ]
        await self.remove(strays)
        here = image.partitions_of(self._node_id)
        noted = {tp for f in self._log_dirs for tp in (*f.recovery_points, *f.log_starts)}
        vanished = sorted(noted - set(here))
        for tp in vanished:
            self._log_dirs.forget(tp)
        if vanished:
            await self._checkpoints.write()
        return [name for _, name in strays]

    async def remove_one(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Rename the directory of a partition's name, if it belongs to another topic id."""
        log_dir, name = self._log_dirs.find(tp), str(tp)
        if log_dir is None or log_dir not in self._log_dirs.working:
            return
        try:
            if await run_blocking(belongs_to_another, log_dir.half, log_dir.path, name, topic_id):
                await self.remove([(log_dir, name)])
        except StorageError as error:
            logger.error("the stray directory %s/%s stays: %s", log_dir.location, name, error)
            self._log_dirs.remember(tp, log_dir)

    async def remove(self, strays: Collection[tuple[BrokerDir, str]]) -> None:
        """Rename stray directories, and forget their recovery points and log starts."""
        for _, name in strays:
            tp = parse_partition_dir(name)
            if tp is not None:
                self._log_dirs.forget(tp)
        if strays:
            await self._checkpoints.write()
        for log_dir, name in strays:
            if is_half_deleted(name):
                logger.info("deleting %s/%s, as was begun", log_dir.location, name)
                await run_blocking(log_dir.half.remove_folder, f"{log_dir.path}/{name}")
                continue
            if not await run_blocking(log_dir.half.is_folder, f"{log_dir.path}/{name}"):
                continue
            target = await run_blocking(rename_stray_dir, log_dir.half, log_dir.path, name)
            logger.warning(
                "%s/%s is of no partition that the cluster places here; it is kept as %s, and can "
                "be deleted if its topic was",
                log_dir.location,
                name,
                target,
            )
