"""Truncations of followers' logs, in worker threads.

Owns: the order of the steps.  The log takes no appends, its flushes end, its lower recovery point
is written to the checkpoint, and only then the log is truncated.  A crash at any point leaves a log
that opens.  Must not know when, or to which offset, a log is truncated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from sparklog.errors import SparklogError
from sparklog.executors.log_dirs import LogCheckpoints
from sparklog.executors.partition import Effect, EpochEnd, Partition, TieredStart, Truncated
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class Truncations:
    """The truncations of one broker; their effects go to ``carry_out``, also after a failure."""

    def __init__(
        self,
        *,
        checkpoints: LogCheckpoints,
        log_flusher: LogFlusher,
        log_workers: LogWorkers,
        carry_out: Callable[[Sequence[Effect]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._checkpoints = checkpoints
        self._log_flusher = log_flusher
        self._log_workers = log_workers
        self._carry_out = carry_out
        self._now_ms = now_ms
        self._running: dict[TopicPartition, asyncio.Task[Truncated]] = {}
        self._writing = asyncio.Lock()
        self._next_write: asyncio.Task[None] | None = None

    async def truncate(
        self, partition: Partition, diverging: EpochEnd, *, leader_epoch: int
    ) -> Truncated | None:
        """Truncate a follower's log to where it diverges from the leader's log.

        Returns None when there is nothing to truncate, or the replica has left ``leader_epoch``.
        Raises StorageError or KafkaError.
        """
        if not partition.begin_truncation(diverging, leader_epoch=leader_epoch):
            return None
        return await self._run(partition)

    async def truncate_fully_and_start_at(
        self, partition: Partition, offset: int, *, leader_epoch: int
    ) -> Truncated | None:
        """Drop a follower's whole log, so that it starts at ``offset``.  See ``truncate``."""
        if not partition.begin_full_truncation(offset, leader_epoch=leader_epoch):
            return None
        return await self._run(partition)

    async def start_in_tier(
        self, partition: Partition, start: TieredStart, *, leader_epoch: int
    ) -> Truncated | None:
        """Drop a follower's whole log: the records below its new start are in the bucket.

        See ``truncate``.
        """
        if not partition.begin_start_in_tier(start, leader_epoch=leader_epoch):
            return None
        return await self._run(partition)

    async def recover(self, partition: Partition, start: TieredStart) -> None:
        """Start an empty log where the records in the bucket end; the replica has no role yet.

        Raises StorageError or KafkaError, and then the log is empty as before, or offline.
        """
        if partition.begin_recovery(start):
            await self._run(partition)

    async def wait_for_truncation(self, topic_partition: TopicPartition) -> None:
        """Wait for the truncation of this log, if one is running."""
        running = self._running.get(topic_partition)
        if running is not None:
            await asyncio.wait([running])

    def _run(self, partition: Partition) -> Awaitable[Truncated]:
        """Truncate to the end, even when the caller is cancelled: a thread works on the log."""
        tp = partition.topic_partition
        task = asyncio.get_running_loop().create_task(self._truncate(partition))
        self._running[tp] = task

        def ended(task: asyncio.Task[Truncated]) -> None:
            del self._running[tp]
            if not task.cancelled() and task.exception() is not None:
                logger.debug("%s was not truncated: %s", tp, task.exception())

        task.add_done_callback(ended)
        return asyncio.shield(task)

    async def truncate_torn_writes(self, partition: Partition, leader_epoch: int) -> None:
        """Drop batches that a crash has torn: their leader epoch is above ``leader_epoch``.

        ``leader_epoch`` is the partition's epoch in the cluster image; the replica has no role yet.
        A failure is logged.
        """
        if partition.begin_torn_write_truncation(leader_epoch):
            tp = partition.topic_partition
            logger.warning(
                "%s holds a torn write, which no leader has written: it is truncated", tp
            )
            try:
                await self._run(partition)
            except SparklogError as error:
                logger.error("the torn write of %s was not truncated: %s", tp, error)

    async def _truncate(self, partition: Partition) -> Truncated:
        tp = partition.topic_partition
        try:
            await self._log_flusher.end_flushes(partition)
            if not self._checkpoints.allow(partition.log):
                await self._write_checkpoints()
        except (SparklogError, asyncio.CancelledError):
            self._carry_out(partition.abandon_truncation(self._now_ms()))
            raise
        truncated = await self._log_workers.run(tp, partition.truncate(self._now_ms()))
        self._carry_out(truncated.effects)
        level = logging.WARNING if truncated.committed else logging.INFO
        logger.log(
            level, "%s was truncated from %d to %d", tp, truncated.end_before, truncated.end_after
        )
        return truncated

    def _write_checkpoints(self) -> Awaitable[None]:
        """Write the recovery points of all logs; truncations that wait for a write share it."""
        if self._next_write is None:
            self._next_write = asyncio.get_running_loop().create_task(self._write_next())
        return asyncio.shield(self._next_write)

    async def _write_next(self) -> None:
        async with self._writing:
            self._next_write = None
            await self._checkpoints.write()
