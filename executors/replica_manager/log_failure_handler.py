"""Failures of logs and log directories: checks of suspected ones, and replicas that go offline.

Owns: which check follows a suspicion, and taking replicas offline.  Must not know how a log is
opened again, or what the controller does about the loss.
"""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from sparklog.errors import SparklogError, StorageError
from sparklog.executors.log import FileCache
from sparklog.executors.log_dirs import BrokerDir, DiskWatch, LogDirs, LogWatch
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.delayed_operations import DelayedOperations
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.types import TopicPartition


class LogFailureHandler:
    """The failures of one broker's logs and log directories.

    ``beat_now`` sends the next heartbeat at once, so that the controller is told of a failed log.
    ``close_partition`` closes a partition that is not hosted any more.  ``is_tiered`` tells whether
    a topic's records are in the bucket too.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        files: FileCache,
        delayed_operations: DelayedOperations,
        *,
        close_partition: Callable[[Partition], Awaitable[None]],
        beat_now: Callable[[], None],
        is_tiered: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._delayed_operations = delayed_operations
        self._close_partition = close_partition
        self._beat_now = beat_now
        self._is_tiered = is_tiered
        #: Set when no log directory works any more.
        self.disks_gone = asyncio.Event()
        self.disk_watch = DiskWatch(self.handle_log_dir_failure)
        self.log_watch = LogWatch(
            partitions.get,
            partitions.names,
            files,
            on_loss=self.fail_log,
            on_disk_error=self.suspect_disk,
        )

    def record_failure(
        self, topic_partition: TopicPartition, topic_id: UUID, error: SparklogError
    ) -> None:
        """Record that the log of a replica has failed that is not open or is about to be closed."""
        state = self._partitions.image.partition(topic_partition)
        is_tiered = self._is_tiered(topic_partition.topic)
        self._partitions.failed.add(topic_partition, topic_id, error, state, is_tiered=is_tiered)
        self._beat_now()

    def fail_log(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take an open replica offline, because its log has failed.

        Requests for the replica are refused, and the controller is told.  If ``error`` means that
        the log is lost, the leader's log is copied.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None or not self._partitions.failed.is_new_failure(topic_partition, error):
            return
        self.log_watch.suspect(topic_partition)
        partition.log.fail(error)
        self.record_failure(topic_partition, partition.topic_id, error)
        self.suspect_disk(topic_partition)
        asyncio.get_running_loop().call_soon(self._delayed_operations.complete_all, topic_partition)

    def suspect(self, topic_partition: TopicPartition) -> None:
        """Find out what has failed after an operation on this log met a storage error."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.log.offline is not None:
            self.fail_log(topic_partition, partition.log.offline)
        else:
            self.log_watch.suspect(topic_partition)
            self.suspect_disk(topic_partition)

    def suspect_disk(self, topic_partition: TopicPartition) -> None:
        """Probe the disk of the log directory that holds this log."""
        log_dir = self._log_dirs.find(topic_partition)
        if log_dir in self._log_dirs.working:
            self.disk_watch.suspect(log_dir)

    async def handle_log_dir_failure(self, log_dir: BrokerDir, error: StorageError) -> None:
        """Take the replicas in this log directory offline.

        The name and the task are those of ``ReplicaManager.handleLogDirFailure`` (KIP-112).
        """
        removed = [self._partitions.remove(tp) for tp in self._log_dirs.fail(log_dir, error)]
        for partition in filter(None, removed):
            self.record_failure(partition.topic_partition, partition.topic_id, error)
        for partition in filter(None, removed):
            await self._close_partition(partition)
        if not self._log_dirs.working:
            self.disks_gone.set()
