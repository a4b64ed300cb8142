"""Replicas of this broker that were lost: their remains are put aside, and removed in the end.

Owns: which remains there are, and that a lost log is forgotten in the checkpoints before its folder
gets another name.  Must not know when a replica counts as lost, nor how its copy is made.
"""

import asyncio
import logging
from collections.abc import Iterable
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.errors import StorageError
from sparklog.executors.log_dirs import (
    BrokerDir,
    LogCheckpoints,
    LogDirs,
    delete_lost_dir,
    parse_lost_dir,
    set_aside_lost_dir,
)
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.accepted_losses import AcceptedLosses
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class LostReplicas:
    """Of one broker.  ``close`` it."""

    def __init__(self, node_id: int, folders: LogDirs, checkpoints: LogCheckpoints) -> None:
        self._node_id = node_id
        self._folders = folders
        self._checkpoints = checkpoints
        #: Where remains lie, by topic id and partition.
        self._remains: dict[tuple[UUID, int], BrokerDir] = {}
        self._removals: set[asyncio.Task[None]] = set()
        for folder in folders:
            for name in folder.partition_names:
                found = parse_lost_dir(name)
                if found is not None:
                    self._remains[found] = folder

    async def accepted(
        self, lost: Iterable[TopicPartition], config: BrokerConfig
    ) -> dict[TopicPartition, int]:
        """Of these lost logs, which have no other replica, those whose records
        ``lost.logs.accept`` gives up, and up to where the checkpoints say that they had some."""
        found: dict[TopicPartition, int] = {}
        for tp in lost:
            folder = self._folder(tp)
            if folder is None:
                continue
            try:
                if await run_blocking(AcceptedLosses(folder).use, tp, config.lost_logs_accept):
                    points, starts = folder.recovery_points, folder.log_starts
                    found[tp] = max(points.get(tp, 0), starts.get(tp, 0))
                    logger.error("%s goes on with an empty log: its loss is accepted", tp)
            except StorageError as error:
                logger.error("the loss of %s is not accepted: %s", tp, error)
        return found

    async def put_aside(self, tp: TopicPartition, topic_id: UUID, begin_at: int = 0) -> bool:
        """Make room for a new log of this partition, which is not open; whether there is room now.

        The new log begins at ``begin_at``.  A crash between the two steps leaves a log that is in
        no ISR, which follows as any other.
        """
        folder = self._folder(tp)
        if folder is None:
            return False
        self._folders.forget(tp)
        if begin_at:
            folder.log_starts[tp] = begin_at
        try:
            await self._checkpoints.write()
            await run_blocking(set_aside_lost_dir, folder, tp, topic_id)
        except StorageError as error:
            logger.error("%s stays offline: its folder cannot be put aside: %s", tp, error)
            self._folders.remember(tp, folder)
            return False
        self._remains[topic_id, tp.partition] = folder
        # ``begin_at`` and the losses that were accepted are written down in this folder.
        self._folders.remember(tp, folder)
        logger.warning("%s begins anew: what was left of its log is put aside", tp)
        return True

    def _folder(self, tp: TopicPartition) -> BrokerDir | None:
        folder = self._folders.find(tp) or self._folders.held(tp)
        return folder if folder in self._folders.working else None

    def role_changed(self, partition: Partition) -> None:
        """Remains are removed when their replica is in sync again, beside others that are."""
        state, key = partition.state, (partition.topic_id, partition.topic_partition.partition)
        if key not in self._remains or state is None:
            return
        if self._node_id in state.isr and len(state.isr) > 1:
            folder = self._remains[key]
            removal = asyncio.get_running_loop().create_task(
                self.remove_remains(folder, partition.topic_partition, partition.topic_id)
            )
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def remove_remains(self, folder: BrokerDir, tp: TopicPartition, topic_id: UUID) -> None:
        """Remove what was put aside of a replica, if anything was."""
        if self._remains.pop((topic_id, tp.partition), None) is None:
            return
        try:
            await run_blocking(delete_lost_dir, folder, tp, topic_id)
        except StorageError as error:
            logger.error("what was put aside of %s stays: %s", tp, error)

    async def close(self) -> None:
        """No removal is under way afterwards."""
        if self._removals:
            await asyncio.wait(self._removals)
