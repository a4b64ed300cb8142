"""Truncations of followers' logs, in worker threads.

Owns: the order of the steps.  The log takes no appends, its lower recovery point is written down,
flushes end, and only then the log is truncated.  A crash at any point leaves a log that opens.
Must not know when, or to which offset, a log is truncated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from sparklog.errors import SparklogError
from sparklog.executors.log_dirs import LogCheckpoints
from sparklog.executors.partition import Effect, EpochEnd, Partition, Truncated
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

    async def cut(
        self, partition: Partition, diverging: EpochEnd, *, leader_epoch: int
    ) -> Truncated | None:
        """Truncate a follower's log to where it diverges from the log of this epoch's leader.

        Returns None when there is nothing to truncate, or another role came first.  Raises
        StorageError or KafkaError.
        """
        if not partition.begin_truncation(diverging, leader_epoch=leader_epoch):
            return None
        return await self._run(partition)

    async def start_over(
        self, partition: Partition, offset: int, *, leader_epoch: int
    ) -> Truncated | None:
        """Empty a follower's log, which goes on at ``offset``.  Returns and raises as ``cut``."""
        if not partition.begin_start_over(offset, leader_epoch=leader_epoch):
            return None
        return await self._run(partition)

    async def settle(self, topic_partition: TopicPartition) -> None:
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
                logger.debug("%s was not cut: %s", tp, task.exception())

        task.add_done_callback(ended)
        return asyncio.shield(task)

    async def repair(self, partition: Partition, leader_epoch: int) -> None:
        """Truncate the torn writes of a crash, when the partition is at this leader epoch."""
        if partition.begin_repair(leader_epoch):
            tp = partition.topic_partition
            logger.warning("%s holds what no leader wrote: a torn write is cut off", tp)
            try:
                await self._run(partition)
            except SparklogError as error:
                logger.error("%s is not repaired: %s", tp, error)

    async def _truncate(self, partition: Partition) -> Truncated:
        tp = partition.topic_partition
        try:
            await self._log_flusher.settle(partition)
            if not self._checkpoints.allow(partition.log):
                await self._write_down()
        except (SparklogError, asyncio.CancelledError):
            self._carry_out(partition.abandon_truncation(self._now_ms()))
            raise
        truncated = await self._log_workers.run(tp, partition.truncate(self._now_ms()))
        self._carry_out(truncated.effects)
        said = logger.warning if truncated.committed else logger.info
        said("%s was cut from %d to %d", tp, truncated.end_before, truncated.end_after)
        return truncated

    def _write_down(self) -> Awaitable[None]:
        """The next write of all recovery points, which all truncations that need it share."""
        if self._next_write is None:
            self._next_write = asyncio.get_running_loop().create_task(self._write_next())
        return asyncio.shield(self._next_write)

    async def _write_next(self) -> None:
        async with self._writing:
            self._next_write = None
            await self._checkpoints.write()
