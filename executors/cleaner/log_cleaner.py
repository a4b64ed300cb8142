"""The log cleaner of a broker: one compacted log after the other.

Owns: when a log is cleaned, the report about it, and the clean offset afterwards.  Must not know
how segments are rewritten or swapped.

Every replica cleans its own log, as in Kafka.  A cleaning reads sealed segments below the last
stable offset and the recovery point.  Nothing but a truncation changes them, so the result is
swapped in if the partition is still the same and was not truncated, whatever its role is by then.
A cleaning works on paths, so it ends before its log is closed (``replacements.run_cleaning``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from sparklog.errors import CorruptLogError, SparklogError, StorageError
from sparklog.executors.cleaner.choice import FailedCleanings, LogToClean, filthiest
from sparklog.executors.cleaner.cleaner_process import CleaningError, run_cleaning
from sparklog.executors.cleaner.job import (
    CleaningJob,
    CleaningReport,
    LastRecord,
    SourceSegment,
)
from sparklog.executors.cleaner.plan import (
    CleanableRange,
    cleanable_range,
    delete_horizon_ms,
    group_segments,
)
from sparklog.executors.log import remove_cleaned
from sparklog.executors.log_dirs import BrokerDir
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import NO_OFFSET

#: The pause after an unexpected error.
FAILED_REST_S: Final = 5.0

#: The longest time until a changed backoff takes effect.
LOOK_S: Final = 1.0

#: Segments that are checked in one turn of the event loop.
SEGMENTS_AT_ONCE: Final = 500
#: Producers that are read in one turn of the event loop.
PRODUCERS_AT_ONCE: Final = 5000

#: Returns the offset below which the other replicas of a partition are clean.
LowestCleanOffset: TypeAlias = Callable[[Partition], Awaitable[int]]
#: Runs a job over a store; raises CleaningError, and then no files are left.
RunCleaning: TypeAlias = Callable[[FileHalf, CleaningJob], Awaitable[CleaningReport]]

logger = logging.getLogger(__name__)


class LogCleaner:
    """The cleaner of one broker; ``run`` it while the broker serves."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        lowest_clean_offset: LowestCleanOffset,
        run: RunCleaning = run_cleaning,
    ) -> None:
        self._replica_manager = replica_manager
        self._lowest_clean_offset = lowest_clean_offset
        self._run_cleaning = run
        self._failures = FailedCleanings[Partition]()
        self._cleaning: Partition | None = None

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about cleanings."""
        cleaning = self._cleaning
        return {
            "log_being_cleaned": str(cleaning.topic_partition) if cleaning else "",
            "logs_not_cleanable": {
                str(partition.topic_partition): failure.reason
                for partition, failure in self._failures.set_aside.items()
            },
        }

    async def run(self) -> None:
        """Clean until cancelled; an unexpected error only delays the next cleaning."""
        if not self._replica_manager.broker_config.log_cleaner_enable:
            await asyncio.get_running_loop().create_future()
        while True:
            try:
                if await self.clean_next():
                    continue
            except Exception:
                logger.exception("the log cleaner failed; it goes on")
                await asyncio.sleep(FAILED_REST_S)
            await self._back_off()

    async def _back_off(self) -> None:
        """Wait for ``log.cleaner.backoff.ms``, which may change meanwhile."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            backoff_s = self._replica_manager.broker_config.log_cleaner_backoff_ms / 1000
            left_s = began_s + backoff_s - loop.time()
            await asyncio.sleep(max(0.0, min(left_s, LOOK_S)))
            if left_s <= LOOK_S:
                return

    async def clean_next(self) -> bool:
        """Clean the filthiest log that is due; return whether there was one."""
        if self._replica_manager.broker_config.log_cleaner_threads == 0:
            return False
        self._failures.keep_only(self._replica_manager)
        chosen = filthiest(await self._due())
        if chosen is None:
            return False
        self._cleaning = chosen.log
        try:
            return await self._clean(chosen.log)
        finally:
            self._cleaning = None

    # the choice

    async def _due(self) -> list[LogToClean[Partition]]:
        due: list[LogToClean[Partition]] = []
        looked_at = 0
        for partition in list(self._replica_manager):
            if not partition.config.compacts:
                continue
            looked_at += len(partition.log.segments)
            if looked_at > SEGMENTS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
            dirty = self._dirty_range(partition)
            if dirty is not None:
                due.append(LogToClean(log=partition, dirty=dirty))
        return due

    def _dirty_range(self, partition: Partition) -> CleanableRange | None:
        """The range to clean now, if there is one; a failure is noted."""
        now_ms = self._replica_manager.now_ms()
        if not self._is_at_rest(partition):
            return None
        if not self._failures.allow(partition, now_ms):
            return None
        try:
            dirty = self._range_of(partition, now_ms)
        except SparklogError as error:  # an index had to be read
            self._note_failure(partition, str(error))
            return None
        return dirty if dirty.is_due(partition.config) else None

    def _range_of(self, partition: Partition, now_ms: int) -> CleanableRange:
        log = partition.log
        return cleanable_range(
            log.segments,
            config=partition.config,
            clean_offset=log.clean_offset,
            log_start_offset=log.local_log_start_offset,
            stable_offset=partition.durable_stable_offset,
            now_ms=now_ms,
        )

    # one cleaning

    async def _clean(self, partition: Partition) -> bool:
        """Clean a log; return False if it is not due any more."""
        tp = partition.topic_partition
        expires_below = await self._lowest_clean_offset(partition)
        # Everything may have changed meanwhile.
        dirty, log_dir = self._dirty_range(partition), self._replica_manager.log_dirs.find(tp)
        if dirty is None or log_dir is None:
            return False
        generation = partition.log.generation
        # A replica that is copied meanwhile gets what this log still has: the tombstones of older
        # values that this cleaning drops stay until the next one.
        expires_below = min(expires_below, partition.log.clean_offset or 0)
        job = self._job(partition, dirty, log_dir, expires_below)
        job = replace(job, producers=await _last_records(partition, dirty.end))
        logger.info("cleaning %s, offsets %d to %d", tp, dirty.first_dirty, dirty.end)
        work = partial(self._rewrite, partition, log_dir.half, job, generation)
        if not await self._replica_manager.replacements.run_cleaning(partition, work):
            logger.info("%s was closed while it was cleaned", tp)
        return True

    async def _rewrite(
        self, partition: Partition, half: FileHalf, job: CleaningJob, generation: int
    ) -> None:
        """Rewrite the segments of the job, and swap the result in."""
        first_base = job.groups[0][0].base_offset
        try:
            report = await self._run_cleaning(half, job)
            if not await self._finish(partition, report, generation):
                logger.info(
                    "%s has changed while it was cleaned; it is cleaned again",
                    partition.topic_partition,
                )
                await run_blocking(remove_cleaned, half, job.partition_dir)
                return
        except (CleaningError, CorruptLogError, StorageError) as error:
            # Retention may have deleted a segment under the cleaner.
            is_whole = partition.log.segments[0].base_offset == first_base
            if self._is_current(partition, generation) and is_whole:
                self._note_failure(partition, str(error))
            with suppress(StorageError):  # the disk may be what failed; a start removes them too
                await run_blocking(remove_cleaned, half, job.partition_dir)
            return
        self._failures.succeeded(partition)
        self._count(partition, report)

    async def _finish(self, partition: Partition, report: CleaningReport, generation: int) -> bool:
        """Swap the groups in, oldest first, and write the clean offset; False if the log has
        changed."""
        replacements = self._replica_manager.replacements
        for group in report.groups:
            if not self._is_current(partition, generation):
                return False
            if not await replacements.replace(partition, group, generation=generation):
                return False
        if not self._is_current(partition, generation):
            return False
        return await replacements.advance_clean_offset(
            partition, report.clean_offset, generation=generation
        )

    def _is_current(self, partition: Partition, generation: int) -> bool:
        return (
            self._replica_manager.get(partition.topic_partition) is partition
            and partition.log.generation == generation
            and partition.log.offline is None
            and partition.config.compacts
        )

    def _is_at_rest(self, partition: Partition) -> bool:
        """Whether nothing else changes the log, and no range of it waits for a repair."""
        log = partition.log
        return (
            self._is_current(partition, log.generation)
            and not log.truncating
            and not log.damage.ranges
        )

    def _job(
        self, partition: Partition, dirty: CleanableRange, log_dir: BrokerDir, expires_below: int
    ) -> CleaningJob:
        log, config = partition.log, partition.config
        broker_config, now_ms = self._replica_manager.broker_config, self._replica_manager.now_ms()
        segments = log.segments
        return CleaningJob(
            url=log_dir.half.url,
            partition_dir=log.partition_dir,
            groups=tuple(
                tuple(
                    SourceSegment(base_offset=s.base_offset, next_offset=s.next_offset, size=s.size)
                    for s in group
                )
                for group in group_segments(segments, config=config, end_offset=dirty.end)
            ),
            first_dirty=dirty.first_dirty,
            end_offset=dirty.end,
            now_ms=now_ms,
            delete_horizon_ms=delete_horizon_ms(config, now_ms),
            expires_below=expires_below,
            aborted_entries=tuple(
                (s.base_offset, s.txn_index.entries) for s in segments if s.txn_index.entries
            ),
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_size=broker_config.log_cleaner_dedupe_buffer_size,
            io_buffer_size=broker_config.log_cleaner_io_buffer_size,
            io_max_bytes_per_second=broker_config.log_cleaner_io_max_bytes_per_second,
        )

    def _note_failure(self, partition: Partition, reason: str) -> None:
        tp, now_ms = partition.topic_partition, self._replica_manager.now_ms()
        self._replica_manager.counters.cleanings_failed += 1
        failure = self._failures.failed(partition, reason, now_ms)
        level = logging.ERROR if failure.is_set_aside else logging.WARNING
        logger.log(
            level,
            "%s cannot be cleaned (failure %d, tried again in %d s): %s",
            tp,
            failure.times,
            (failure.retry_at_ms - now_ms) // 1000,
            reason,
        )

    def _count(self, partition: Partition, report: CleaningReport) -> None:
        counters, stats = self._replica_manager.counters, report.stats
        counters.logs_cleaned += 1
        counters.cleaner_bytes_read += stats.bytes_read
        counters.cleaner_bytes_written += stats.bytes_written
        logger.info(
            "%s is clean below offset %d: %d of %d records are left",
            partition.topic_partition,
            report.clean_offset,
            stats.records_kept,
            stats.records_read,
        )


async def _last_records(partition: Partition, end_offset: int) -> dict[int, LastRecord]:
    """The last records of the active producers; batches from ``end_offset`` on stay anyway.

    A producer may write while this reads others; its new records lie beyond ``end_offset``.
    """
    found: dict[int, LastRecord] = {}
    for number, (producer_id, entry) in enumerate(list(partition.producers.entries.items()), 1):
        if number % PRODUCERS_AT_ONCE == 0:
            await asyncio.sleep(0)
        data_offset = entry.batches[-1].last_offset if entry.batches else NO_OFFSET
        if data_offset < end_offset:
            found[producer_id] = LastRecord(
                data_offset=data_offset, producer_epoch=entry.producer_epoch
            )
    return found
