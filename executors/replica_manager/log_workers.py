"""Blocking work on logs in worker threads, one piece of work at a time for each log.

Owns: the order of the work on one log, and the writing of statistics, for one log of the broker at
a time.  Must not know the purpose of the work.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from sparklog.errors import SparklogError
from sparklog.executors.log import Log, Measuring, Steps
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

T = TypeVar("T")

#: The context in which a blocking part of some work runs.
Gate: TypeAlias = Callable[[Callable[[], Any]], AbstractAsyncContextManager[None]]

#: The pause after each step of measuring, as a multiple of its time: requests come first.
PAUSE_FACTOR = 3

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turns:
    """The work on one log that runs or waits."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class LogWorkers:
    """The blocking work of one broker's logs, apart from flushes."""

    def __init__(self) -> None:
        self._turns: dict[TopicPartition, _Turns] = {}
        self._measuring: dict[TopicPartition, asyncio.Task[None]] = {}
        self._measured_one = asyncio.Lock()

    async def run(
        self,
        topic_partition: TopicPartition,
        steps: Steps[T],
        gate: Gate | None = None,
    ) -> T:
        """Run ``steps`` once the earlier work on this log has ended, and return their result.

        Each blocking part waits for ``gate``, which bounds how many such parts run at once.
        """
        turns = self._turns.setdefault(topic_partition, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                return await _run_steps(steps, gate)
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[topic_partition]

    def measure(self, log: Log) -> None:
        """Begin to write the statistics that ``log`` lacks; returns at once."""
        tp = log.topic_partition
        if tp not in self._measuring:
            task = asyncio.get_running_loop().create_task(self._measure(log))
            self._measuring[tp] = task

    async def end_work(self, topic_partition: TopicPartition) -> None:
        """Stop measuring this log, and wait until all other work on it has ended."""
        measuring = self._measuring.get(topic_partition)
        if measuring is not None:
            measuring.cancel()
            await asyncio.wait([measuring])
        while topic_partition in self._turns:
            async with self._turns[topic_partition].lock:
                pass
            await asyncio.sleep(0)

    async def _measure(self, log: Log) -> None:
        tp = log.topic_partition
        try:
            async with self._measured_one:
                while (measuring := log.statistics.next_pending()) is not None:
                    try:
                        await self._measure_segment(log, measuring)
                    except SparklogError as error:  # the others may work
                        logger.warning("no statistics of a segment of %s: %s", tp, error)
        finally:
            del self._measuring[tp]

    async def _measure_segment(self, log: Log, measuring: Measuring) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                more = await run_blocking(measuring.measure_more)
            except SparklogError:
                if log.statistics.is_current(measuring):
                    raise
                return  # deleted, truncated or replaced meanwhile
            if not more:
                break
            await asyncio.sleep(PAUSE_FACTOR * (loop.time() - began))
        await self.run(log.topic_partition, log.statistics.take(measuring))


async def _run_steps(steps: Steps[T], gate: Gate | None) -> T:
    try:
        part = next(steps)
        while True:
            try:
                async with contextlib.nullcontext() if gate is None else gate(part):
                    result = await run_blocking(part)
            except Exception as error:
                part = steps.throw(error)
            else:
                part = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
