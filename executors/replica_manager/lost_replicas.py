"""Lost logs of this broker: their directories are renamed, and removed once a copy is in sync.

Owns: the directories of lost logs (the *remains*), and the order in which the checkpoints forget a
lost log before its directory is renamed.  Must not know when a log counts as lost, or how its copy
is made.
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
    """The lost replicas of one broker.  Call ``close`` at the end."""

    def __init__(self, node_id: int, log_dirs: LogDirs, checkpoints: LogCheckpoints) -> None:
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._checkpoints = checkpoints
        #: The log directories with remains, by topic id and partition.
        self._remains: dict[tuple[UUID, int], BrokerDir] = {}
        self._removals: set[asyncio.Task[None]] = set()
        for log_dir in log_dirs:
            for name in log_dir.partition_names:
                found = parse_lost_dir(name)
                if found is not None:
                    self._remains[found] = log_dir

    async def accepted(
        self, lost: Iterable[TopicPartition], config: BrokerConfig
    ) -> dict[TopicPartition, int]:
        """The losses of logs without another replica that ``lost.logs.accept`` accepts.

        Returns for each partition the offset up to which there were records, as the checkpoints
        say.
        """
        found: dict[TopicPartition, int] = {}
        for tp in lost:
            log_dir = self._working_log_dir(tp)
            if log_dir is None:
                continue
            try:
                if await run_blocking(AcceptedLosses(log_dir).use, tp, config.lost_logs_accept):
                    found[tp] = self.known_end(tp)
                    logger.error("%s goes on with an empty log: its loss is accepted", tp)
            except StorageError as error:
                logger.error("the loss of %s is not accepted: %s", tp, error)
        return found

    def known_end(self, tp: TopicPartition) -> int:
        """The offset up to which a lost log had records, as the checkpoints say."""
        log_dir = self._working_log_dir(tp)
        if log_dir is None:
            return 0
        return max(log_dir.recovery_points.get(tp, 0), log_dir.log_starts.get(tp, 0))

    async def make_room(self, tp: TopicPartition, topic_id: UUID, begin_at: int = 0) -> bool:
        """Rename the directory of a lost log, which is not open, so that a new log can be made.

        The new log begins at offset ``begin_at``.  Returns whether there is room now.  A crash
        between the two steps leaves a log that is in no ISR, which follows as any other.
        """
        log_dir = self._working_log_dir(tp)
        if log_dir is None:
            return False
        self._log_dirs.forget(tp)
        if begin_at:
            log_dir.log_starts[tp] = begin_at
        try:
            await self._checkpoints.write()
            await run_blocking(set_aside_lost_dir, log_dir, tp, topic_id)
        except StorageError as error:
            logger.error("%s stays offline: its directory cannot be put aside: %s", tp, error)
            self._log_dirs.remember(tp, log_dir)
            return False
        self._remains[topic_id, tp.partition] = log_dir
        # ``begin_at`` and the accepted losses are written down in this log directory.
        self._log_dirs.remember(tp, log_dir)
        logger.warning("%s begins anew: what was left of its log is put aside", tp)
        return True

    def _working_log_dir(self, tp: TopicPartition) -> BrokerDir | None:
        log_dir = self._log_dirs.find(tp) or self._log_dirs.held(tp)
        return log_dir if log_dir in self._log_dirs.working else None

    def role_changed(self, partition: Partition) -> None:
        """Remove the remains of a replica that is in sync again, unless it is the only one."""
        state, key = partition.state, (partition.topic_id, partition.topic_partition.partition)
        if key not in self._remains or state is None:
            return
        if self._node_id in state.isr and len(state.isr) > 1:
            log_dir = self._remains[key]
            removal = asyncio.get_running_loop().create_task(
                self.remove_remains(log_dir, partition.topic_partition, partition.topic_id)
            )
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def remove_remains(self, log_dir: BrokerDir, tp: TopicPartition, topic_id: UUID) -> None:
        """Remove the remains of a replica, if there are any."""
        if self._remains.pop((topic_id, tp.partition), None) is None:
            return
        try:
            await run_blocking(delete_lost_dir, log_dir, tp, topic_id)
        except StorageError as error:
            logger.error("what was put aside of %s stays: %s", tp, error)

    async def close(self) -> None:
        """Wait for the removals that are under way."""
        if self._removals:
            await asyncio.wait(self._removals)
