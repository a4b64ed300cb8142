"""Cleanings of open logs, and the replacements of segments by cleaned segments.

Owns: the end of a cleaning before its log is closed, and the order of the steps of a replacement.
No flush starts, the running flush ends, and only then segments are replaced, while nothing else
works on the log.  Must not know how segments are cleaned, or which.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sparklog.errors import StorageError
from sparklog.executors.log import CleanedGroup
from sparklog.executors.partition import Effect, Partition
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.types import TopicPartition


class SegmentReplacements:
    """The cleanings and replacements of one broker.

    Flushes that waited for a replacement go to ``carry_out``.
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
        self._cleanings: dict[TopicPartition, asyncio.Task[None]] = {}
        self._running: dict[TopicPartition, asyncio.Task[bool]] = {}

    async def run_cleaning(
        self, partition: Partition, cleaning: Callable[[], Coroutine[Any, Any, None]]
    ) -> bool:
        """Run a cleaning of this log; return False if the log is closed, or was closed meanwhile.

        The close of a log cancels its cleaning, and waits until the cleaning has ended
        (``LogCleaner.abortCleaning``).  After the close, the paths of the log's files may lead to
        the files of a new topic of the same name.
        """
        tp = partition.topic_partition
        assert tp not in self._cleanings, f"{tp} is being cleaned already"
        if not self._is_open(partition):
            return False
        task = asyncio.get_running_loop().create_task(cleaning())
        self._cleanings[tp] = task
        task.add_done_callback(lambda _: self._cleanings.pop(tp))
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():  # the caller was cancelled
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    async def replace(self, partition: Partition, group: CleanedGroup, *, generation: int) -> bool:
        """Put a cleaned segment in the place of the segments that it was made from.

        ``generation`` is ``log.generation`` at the time of the plan.  Returns False when the plan
        is outdated: a truncation or retention came first, the log is offline, or the partition is
        closed.  Raises StorageError and CorruptLogError.  The replacement goes on when the caller
        is cancelled.
        """
        if not self._may_start(partition) or not partition.log.begin_replacement():
            return False
        return await self._start(partition, self._replace(partition, group, generation))

    async def advance_clean_offset(
        self, partition: Partition, offset: int, *, generation: int
    ) -> bool:
        """Record durably that the log has been compacted below ``offset``.

        Returns False when the plan is outdated, as ``replace`` does.  Raises StorageError.  The
        write goes on when the caller is cancelled.
        """
        if not self._may_start(partition):
            return False
        steps = partition.log.advance_clean_offset(offset, generation)
        return await self._start(partition, self._log_workers.run(partition.topic_partition, steps))

    async def end_cleaning(self, topic_partition: TopicPartition) -> None:
        """End the cleaning of a log that is about to be closed.

        A rewrite is cancelled; the replacement or the write that is running is waited for.
        """
        cleaning = self._cleanings.get(topic_partition)
        if cleaning is not None:
            cleaning.cancel()
            await asyncio.wait([cleaning])
        running = self._running.get(topic_partition)
        if running is not None:
            await asyncio.wait([running])

    def _may_start(self, partition: Partition) -> bool:
        return partition.topic_partition not in self._running and self._is_open(partition)

    async def _start(self, partition: Partition, work: Coroutine[Any, Any, bool]) -> bool:
        """Begin work that ``end_cleaning`` waits for from this call on, and return its result."""
        tp = partition.topic_partition
        task = asyncio.get_running_loop().create_task(work)
        self._running[tp] = task

        def ended(task: asyncio.Task[bool]) -> None:
            del self._running[tp]
            if not task.cancelled():
                task.exception()  # the caller may be gone

        task.add_done_callback(ended)
        return await asyncio.shield(task)

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
