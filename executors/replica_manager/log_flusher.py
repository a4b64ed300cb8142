"""Group commit: flushes logs in worker threads, never on the loop.

Owns: at most one running flush and at most one timer per partition.  Records that are appended
while a flush runs are covered by the next flush.  Must not know why a flush is wanted.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from sparklog.errors import StorageError
from sparklog.executors.log import PostponedFlushError
from sparklog.executors.partition import Effect, Partition
from sparklog.executors.purgatory import Timer, Timers
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

#: The pause in milliseconds before a flush for which the disk had no room is made again.
POSTPONED_MS = 5_000

logger = logging.getLogger(__name__)


class LogFlusher:
    """Carries out ``FlushLog``; hands the effects of a finished flush to ``carry_out``.

    ``on_failed_flush`` is called with each partition whose log a failed flush took offline.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        carry_out: Callable[[Sequence[Effect]], None],
        timers: Timers,
        on_failed_flush: Callable[[TopicPartition], None] = lambda _: None,
    ) -> None:
        self._now_ms = now_ms
        self._timers = timers
        self._on_failed_flush = on_failed_flush
        self._carry_out = carry_out
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._planned: dict[TopicPartition, tuple[int, Timer]] = {}

    def plan(self, partition: Partition, at_ms: int) -> None:
        """Flush at ``at_ms``, unless a flush is planned for an earlier time or running."""
        tp = partition.topic_partition
        if tp in self._running:
            return
        wait_ms = at_ms - self._now_ms()
        planned = self._planned.get(tp)
        if planned is not None:
            if wait_ms > 0 and planned[0] <= at_ms:
                return
            self._timers.cancel(planned[1])
            del self._planned[tp]
        if wait_ms <= 0:
            self._start(partition)
            return
        timer = self._timers.call_later(wait_ms / 1000, partial(self._fire, partition))
        self._planned[tp] = (at_ms, timer)

    async def end_flushes(self, partition: Partition) -> None:
        """Cancel the planned flush of this partition and wait for the running one."""
        tp = partition.topic_partition
        while tp in self._running or tp in self._planned:
            planned = self._planned.pop(tp, None)
            if planned is not None:
                self._timers.cancel(planned[1])
            if tp in self._running:
                await asyncio.wait([self._running[tp]])

    def _fire(self, partition: Partition) -> None:
        if self._planned.pop(partition.topic_partition, None) is not None:
            self._start(partition)

    def _start(self, partition: Partition) -> None:
        task = asyncio.get_running_loop().create_task(self._flush(partition))
        self._running[partition.topic_partition] = task

    async def _flush(self, partition: Partition) -> None:
        log, is_postponed = partition.log, False
        job = log.start_flush(self._now_ms(), force=partition.flush_pending)
        try:
            if job is not None:
                try:
                    await run_blocking(job.run)
                except PostponedFlushError as error:
                    logger.warning("a flush of %s waits: %s", partition.topic_partition, error)
                    log.postpone_flush(job)
                    is_postponed = True
                except Exception as error:
                    # After any error the content of the disk is unknown, so the flush must fail.
                    logger.error("%s goes offline: %s", partition.topic_partition, error)
                    if not isinstance(error, StorageError):
                        error = StorageError(repr(error))
                    log.fail_flush(job, error)
                else:
                    log.finish_flush(job, self._now_ms())
                if log.offline is not None:
                    self._on_failed_flush(partition.topic_partition)
        finally:
            del self._running[partition.topic_partition]
        if is_postponed:
            self.plan(partition, self._now_ms() + POSTPONED_MS)
            return
        # Also without a job: the loop's timers and the deadline use different clocks.
        self._carry_out(partition.flushed(self._now_ms()))
