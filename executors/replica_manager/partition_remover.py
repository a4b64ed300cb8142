"""Removing the partitions that this broker hosts no longer, and making room for lost logs.

Owns: the order: a partition is closed before its log is deleted or renamed.  Must not know which
partitions an image removes, or how directories are deleted.
"""

from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.executors.log_dirs import BrokerDir, LogDirs
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.log_manager import LogManager
from sparklog.types import TopicPartition


class PartitionRemover:
    """``close_partition`` closes a partition that is not hosted any more; ``forget_topic`` is
    called with each topic that the image has no longer."""

    def __init__(
        self,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        log_manager: LogManager,
        *,
        close_partition: Callable[[Partition], Awaitable[None]],
        forget_topic: Callable[[str], None],
    ) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._log_manager = log_manager
        self._close_partition = close_partition
        self._forget_topic = forget_topic

    async def remove(self, gone: Collection[TopicPartition], *, keep: bool) -> None:
        """Close these partitions, forget them on the disk, and delete their directories.

        ``keep`` renames the directories to strays instead.  Use it when no commit removed the
        partitions, and they are only missing in another image.
        """
        doomed: list[tuple[BrokerDir, TopicPartition, UUID]] = []
        for tp in gone:
            failed = self._partitions.failed.remove(tp)
            partition = self._partitions.remove(tp)
            log_dir = self._log_dirs.find(tp)
            if partition is not None:
                await self._close_partition(partition)
            replica = partition or failed
            if log_dir in self._log_dirs.working and replica:
                doomed.append((log_dir, tp, replica.topic_id))
            self._log_dirs.forget(tp)
            if self._partitions.image.topic(tp.topic) is None:
                self._forget_topic(tp.topic)
        await self._log_manager.delete(doomed, keep=keep)

    async def replace_lost_logs(self, config: BrokerConfig) -> None:
        """Make room for new logs in place of lost ones.

        A log is replaced if another replica leads, or if ``lost.logs.accept`` gives up its records.
        """
        image, failed_logs = self._partitions.image, self._partitions.failed
        lost = self._log_manager.lost
        accepted = await lost.accepted(failed_logs.without_other_replica(image), config)
        for tp in (*failed_logs.replaceable(image), *accepted):
            partition, failed = self._partitions.remove(tp), failed_logs.get(tp)
            if partition is not None:
                await self._close_partition(partition)
            # An offset that a client may remember must not be given to another record.
            end = 0 if tp not in accepted or partition is None else partition.log.log_end_offset
            begin_at = max(end, accepted.get(tp, 0))
            if failed is not None and await lost.make_room(tp, failed.topic_id, begin_at):
                failed_logs.remove(tp)
