"""Replacements of segments by cleaned segments, in worker threads.

Owns: the order of the steps.  No flush starts, the running flush ends, and only then segments are
replaced, while nothing else works on the log.  Must not know how segments are cleaned, or which.
"""

import asyncio
from collections.abc import Callable, Sequence

from sparklog.errors import StorageError
from sparklog.executors.log import CleanedGroup
from sparklog.executors.partition import Effect, Partition
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.types import TopicPartition


class SegmentReplacements:
    """The replacements of one broker; flushes that waited for one go to ``carry_out``.

    ``is_open`` tells whether a partition is still open here.  ``on_failure`` is called with each
    partition whose disk failed during a replacement.
    """

    def __init__(
        self,
        *,
        log_flusher: LogFlusher,
        log_workers: LogWorkers,
        is_open: Callable[[Partition], bool],
        carry_out: Callable[[Sequence[Effect]], None],
        on_failure: Callable[[TopicPartition], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._log_flusher = log_flusher
        self._log_workers = log_workers
        self._is_open = is_open
        self._carry_out = carry_out
        self._on_failure = on_failure
        self._now_ms = now_ms
        self._running: dict[TopicPartition, asyncio.Task[bool]] = {}

    async def replace(self, partition: Partition, group: CleanedGroup, *, generation: int) -> bool:
        """Put a cleaned segment in the place of the segments that it was made from.

        ``generation`` is ``log.generation`` at the time of the plan.  Returns False when the plan
        is outdated: a truncation or retention came first, the log is offline, or the partition is
        closed.  Raises StorageError and CorruptLogError.  The replacement goes on when the caller
        is cancelled.
        """
        tp = partition.topic_partition
        if tp in self._running or not self._is_open(partition):
            return False
        if not partition.log.begin_replacement():
            return False
        task = asyncio.get_running_loop().create_task(self._replace(partition, group, generation))
        self._running[tp] = task

        def ended(task: asyncio.Task[bool]) -> None:
            del self._running[tp]
            if not task.cancelled():
                task.exception()  # the caller may be gone

        task.add_done_callback(ended)
        return await asyncio.shield(task)

    async def wait_for_replacement(self, topic_partition: TopicPartition) -> None:
        """Wait for the replacement in this log, if one is running."""
        running = self._running.get(topic_partition)
        if running is not None:
            await asyncio.wait([running])

    async def _replace(self, partition: Partition, group: CleanedGroup, generation: int) -> bool:
        log, tp = partition.log, partition.topic_partition
        try:
            await self._log_flusher.end_flushes(partition)
            steps = log.replace_segments(group, generation, self._now_ms())
            return await self._log_workers.run(tp, steps)
        except StorageError:
            self._on_failure(tp)
            raise
        finally:
            log.end_replacement()
            self._carry_out(partition.plan_flush(self._now_ms()))
