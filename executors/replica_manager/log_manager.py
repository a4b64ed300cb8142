"""The logs of one broker on its disks: opened in a log directory, and deleted there.

Owns: the log directory of a new log, the checkpoints, stray and lost logs.  Must not know roles,
requests, or why a log is opened or deleted.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.errors import StorageError
from sparklog.executors.log import FileCache, Log
from sparklog.executors.log_dirs import (
    BrokerDir,
    LogCheckpoints,
    LogDirs,
    StrayDirs,
    delete_partition_dir,
)
from sparklog.executors.partition import ProducerStateManager
from sparklog.executors.replica_manager.lost_replicas import LostReplicas
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class LogManager:
    """Opens the logs of one broker in their log directories, and deletes them there.

    ``checkpoints``, ``strays`` and ``lost`` own the other files in the log directories.
    ``logs_in`` gives the open logs of a log directory; ``on_refused_write`` is called with a log
    directory that refused to be written to.
    """

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        files: FileCache,
        *,
        logs_in: Callable[[BrokerDir], Iterable[Log]],
        on_refused_write: Callable[[BrokerDir], None],
    ) -> None:
        self._log_dirs = log_dirs
        self._files = files
        self.checkpoints = LogCheckpoints(log_dirs, logs_in, on_refused_write)
        self.strays = StrayDirs(node_id, log_dirs, self.checkpoints)
        self.lost = LostReplicas(node_id, log_dirs, self.checkpoints)
        #: Whether this process has opened logs, and whether it has led partitions.
        self._opened_before = False
        self._led_before = False

    async def open(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        *,
        config: TopicConfig,
        producers: ProducerStateManager,
        now_ms: int,
    ) -> Log:
        """Open the partition's log, or create it in the log directory with the fewest partitions.

        Raises:
            CorruptLogError, StorageError: the log cannot be opened.
            KafkaError: the partition directory belongs to a topic that had the same name.
        """
        # A log from before this process led anything may lie on a disk that is missing.
        log_dir = self._log_dirs.home(tp, is_new=self._led_before)
        return await run_blocking(
            Log.open,
            log_dir.half,
            f"{log_dir.path}/{tp}",
            topic_partition=tp,
            config=config,
            files=self._files,
            producers=producers,
            now_ms=now_ms,
            clean=log_dir.clean and not self._opened_before,
            recovery_point=log_dir.recovery_points.get(tp, 0),
            log_start_offset=log_dir.log_starts.get(tp, 0),
            local_log_start_offset=log_dir.local_log_starts.get(tp, 0),
            topic_id=topic_id,
            must_exist=tp in log_dir.recovery_points,
        )

    async def note_opened(self, opened: Iterable[TopicPartition], *, lead: bool) -> None:
        """Note that all logs of an image are open.  ``lead`` tells whether the broker may lead
        partitions from now on."""
        await self.checkpoints.note(opened)
        self._opened_before = True
        self._led_before = self._led_before or lead

    async def delete(
        self, doomed: Sequence[tuple[BrokerDir, TopicPartition, UUID]], *, keep: bool
    ) -> None:
        """Delete the directories of closed logs, and their entries in the checkpoints.

        ``keep`` renames the directories to strays instead.  Directories stay when a disk refuses.
        """
        if not doomed:
            return
        try:
            # A partition of the same name may come back: it must not inherit recovery points.
            await self.checkpoints.write()
            if keep:
                await self.strays.remove([(log_dir, str(tp)) for log_dir, tp, _ in doomed])
                return
            for log_dir, tp, topic_id in doomed:
                await run_blocking(
                    delete_partition_dir, log_dir.half, log_dir.path, str(tp), topic_id
                )
                await self.lost.remove_remains(log_dir, tp, topic_id)
        except StorageError as error:
            logger.error("directories of deleted partitions stay: %s", error)
            for log_dir, tp, _ in doomed:
                self._log_dirs.remember(tp, log_dir)

    def recovery_threads(self, config: BrokerConfig) -> int:
        """How many logs are opened or closed at the same time."""
        log_dirs = max(len(self._log_dirs.working), 1)
        return config.num_recovery_threads_per_data_dir * log_dirs
