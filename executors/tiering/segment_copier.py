"""The copies of sealed segments by the leader of their partition.

Owns: which partition is copied when, and that a change during a copy is seen after it.  Must not
know how the manifest is taken over, or how an object is written.

A copy takes as long as the bucket lets it, so the partition stays free meanwhile: its manifest, its
log start, its settings and its leader may change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sparklog.config.tiering import quota_burst_ms
from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.tiering.copy_plan import (
    Candidate,
    make_job,
    measured_segment,
    next_candidate,
)
from sparklog.executors.tiering.leadership import Leadership, remote_partition
from sparklog.executors.tiering.leaving import Call
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_process import RemoteLogs
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.service import RemoteLogState

#: Partitions whose next segments are prepared at the same time; copies follow one another.
PREPARED_AT_ONCE: Final = 8
#: Seconds for which one partition is copied before all others have their turn.
COPY_S: Final = 30.0

logger = logging.getLogger(__name__)


class SegmentCopier:
    """The copies of one broker.

    Args:
        led_partitions: the partitions whose manifests are taken over.
        may_copy: whether the broker leads a partition still, and its segments are to be copied.
        call: calls the remote log of a partition.
        take_state: takes what a call has told.
        follow_log_start: tells the manifest where the log starts.
        failed: takes the error of a copy.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        remote: RemoteLogs,
        *,
        led_partitions: Callable[[], Iterable[Leadership]],
        may_copy: Callable[[Leadership], bool],
        call: Call,
        take_state: Callable[[Leadership, RemoteLogState], Awaitable[None]],
        follow_log_start: Callable[[Leadership], Awaitable[None]],
        failed: Callable[[Leadership, Exception], None],
        random_bytes: Callable[[int], bytes],
        metrics: TieringMetrics,
    ) -> None:
        self._replica_manager = replica_manager
        self._remote = remote
        self._led_partitions = led_partitions
        self._may_copy = may_copy
        self._call = call
        self._take_state = take_state
        self._follow_log_start = follow_log_start
        self._failed = failed
        self._random_bytes = random_bytes
        self._metrics = metrics
        self._copying = asyncio.Lock()
        #: A round follows: there may be something to copy.
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """There may be something to copy."""
        self._wanted.set()

    async def run(self) -> None:
        """Copy until cancelled, whenever there may be something to copy."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.copy_all()
            except Exception:
                logger.exception("the copies to the remote_dir failed; they go on")
                self._wanted.clear()

    async def copy_all(self) -> None:
        """Copy every partition once, for COPY_S at most."""
        gate = asyncio.Semaphore(PREPARED_AT_ONCE)

        async def copy(led: Leadership) -> None:
            async with gate:
                await self._copy_partition(led)

        async with asyncio.TaskGroup() as tasks:
            for led in list(self._led_partitions()):
                tasks.create_task(copy(led))

    async def _copy_partition(self, led: Leadership) -> None:
        if not led.copy_retry.is_due(self._replica_manager.monotonic_ms()):
            return
        try:
            await self._copy_for_a_while(led)
        except Exception as error:
            config = self._replica_manager.broker_config
            led.copy_retry.failed(
                self._replica_manager.monotonic_ms(), config.remote_log_manager_task_interval_ms
            )
            if not isinstance(error, CorruptLogError):
                # A process that has ended took its manifests with it.
                async with led.changing:
                    led.state = None
            self._failed(led, error)

    async def _copy_for_a_while(self, led: Leadership) -> None:
        began_ms = self._replica_manager.monotonic_ms()
        while (candidate := await self._prepare(led)) is not None:
            if self._replica_manager.monotonic_ms() - began_ms > COPY_S * 1000:
                self.wake()
                return
            await self._copy(led, candidate)

    async def _prepare(self, led: Leadership) -> Candidate | None:
        """The next segment to copy, which has its indexes and its ``.stats`` then."""
        if self._candidate(led) is None:
            return None
        async with led.changing:
            await self._follow_log_start(led)
        candidate = self._candidate(led)
        if candidate is not None:
            log, tp = led.partition.log, led.partition.topic_partition
            for measured in measured_segment(log, candidate.segment):
                await self._replica_manager.log_workers.run(tp, measured)
        return candidate

    def _candidate(self, led: Leadership) -> Candidate | None:
        if led.state is None or not self._may_copy(led):
            return None
        partition, log = led.partition, led.partition.log
        return next_candidate(
            log.segments,
            led.state.end_offset,
            partition.durable_stable_offset,
            log.log_start_offset,
        )

    async def _copy(self, led: Leadership, candidate: Candidate) -> None:
        """Copy a segment, if it is still the next one, and add it to the manifest."""
        log = led.partition.log
        async with self._copying:  # the process makes one copy at a time
            if led.state is None or self._candidate(led) != candidate:
                return
            if log.log_start_offset > max(led.state.log_start_offset, 0):
                return  # the manifest follows first
            before = log.generation, log.remote_disable_count
            segment: RemoteSegment = await self._remote.call("copy", self._job(led, candidate))
        async with led.changing:
            is_same = (log.generation, log.remote_disable_count) == before
            if not is_same or not self._may_copy(led):
                return  # the objects are orphans
            now_ms = self._replica_manager.now_ms()
            state = await self._call(led, "add_segment", segment, now_ms)
            self._metrics.count_copy(segment.size)
            led.copy_retry.copied()
            await self._take_state(led, state)

    def _job(self, led: Leadership, candidate: Candidate) -> CopyJob:
        partition = led.partition
        log_dir = self._replica_manager.log_dirs.find(partition.topic_partition)
        if log_dir is None:
            raise StorageError(f"{partition.topic_partition} is in no log directory any more")
        config = self._replica_manager.broker_config
        return make_job(
            partition.log,
            candidate,
            url=log_dir.half.url,
            partition=remote_partition(partition),
            leader_epoch=led.leader_epoch,
            now_ms=self._replica_manager.now_ms(),
            nonce=self._random_bytes(8),
            bytes_per_second=config.remote_log_manager_copy_max_bytes_per_second,
            burst_s=quota_burst_ms(
                config.remote_log_manager_copy_quota_window_num,
                config.remote_log_manager_copy_quota_window_size_seconds,
            )
            / 1000,
        )
