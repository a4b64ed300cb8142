"""Removing the partitions that this broker hosts no longer, and making room for lost logs.

Owns: the order: a partition is closed before its log is deleted or renamed.  Must not know which
partitions an image removes, or how directories are deleted.
"""

from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.executors.log_dirs import BrokerDir, LogDirs
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.bucket_recoveries import BucketRecoveries
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.log_manager import LogManager
from sparklog.types import TopicPartition


class PartitionRemover:
    """Removes partitions of one broker.

    ``close_partition`` closes a partition that is not hosted any more; ``forget_topic`` is called
    with each topic that the image has no longer.  ``beat_now`` sends the next heartbeat at once.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        log_manager: LogManager,
        *,
        close_partition: Callable[[Partition], Awaitable[None]],
        forget_topic: Callable[[str], None],
        is_tiered: Callable[[str], bool],
        recoveries: BucketRecoveries,
        beat_now: Callable[[], None],
    ) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._log_manager = log_manager
        self._close_partition = close_partition
        self._forget_topic = forget_topic
        self._is_tiered = is_tiered
        self._recoveries = recoveries
        self._beat_now = beat_now

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
            self._recoveries.forget(tp)
            if self._partitions.image.topic(tp.topic) is None:
                self._forget_topic(tp.topic)
        await self._log_manager.delete(doomed, keep=keep)

    def given_up(self) -> list[TopicPartition]:
        """The logs that begin anew because there is nothing that they could be copied from."""
        return self._partitions.failed.given_up(self._partitions.image, self._is_tiered)

    async def replace_lost_logs(self, config: BrokerConfig) -> None:
        """Make room for new logs in place of lost ones.

        A log is replaced if another replica leads, or if ``lost.logs.accept`` gives up its records.
        A log is also replaced if nothing is left of it and the controller has given it up.  The
        records in the bucket are taken over by the replica that leads.
        """
        image, failed_logs = self._partitions.image, self._partitions.failed
        lost = self._log_manager.lost
        accepted = await self._accepted(config)
        given_up = self.given_up()
        for tp in (*failed_logs.replaceable(image), *given_up, *accepted):
            partition, failed = self._partitions.remove(tp), failed_logs.get(tp)
            if partition is not None:
                await self._close_partition(partition)
            end = lost.known_end(tp) if partition is None else partition.log.log_end_offset
            # An offset that a client may remember must not be given to another record.
            begin_at = max(end, accepted[tp]) if tp in accepted else 0
            if failed is not None and await lost.make_room(tp, failed.topic_id, begin_at):
                failed_logs.remove(tp)
                if tp in given_up:
                    self._recoveries.note_lost(tp, end)
                self._beat_now()

    async def _accepted(self, config: BrokerConfig) -> dict[TopicPartition, int]:
        """The lost logs that ``lost.logs.accept`` gives up, and the offsets behind their records.

        A tiered log is not among them: the controller has to know that it is given up.
        """
        failed_logs = self._partitions.failed
        lost = [
            tp
            for tp in failed_logs.without_other_replica(self._partitions.image)
            if not (failed_logs.is_gone(tp) and self._is_tiered(tp.topic))
        ]
        accepted = await self._log_manager.lost.accepted(lost, config)
        for tp in [tp for tp in accepted if self._is_tiered(tp.topic)]:
            del accepted[tp]
            failed_logs.accept(tp)
            self._beat_now()
        return accepted
