"""The background check of the sealed segments of this broker's logs for damage.

Owns: when a segment is checked (all segments once in ``log.scrub.interval.ms``, a suspected segment
soon), the pace of the checks, and the repair of the ranges that they find damaged.  Must not know
how a segment is checked or a range repaired.

One segment is checked at a time, with at most ``log.scrub.io.max.bytes.per.second`` and a tenth of
a core.  A suspected segment is checked again ``CHECK_AGAIN_S`` later at the earliest.  So clients
cannot make a broker read more than that, however often damage is suspected.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import Segment, SegmentScrub, Suspicion
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.replication.range_repairer import RangeRepairer
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

#: The first check of all segments begins at most this long after the start.
FIRST_PASS_S: Final = 600.0
#: A segment is checked on suspicion at most once in this time.
CHECK_AGAIN_S: Final = 10.0
#: Most suspected segments that are remembered.
SUSPECTED_MAX: Final = 1000
#: The first and the longest time between two repairs of a range that no replica could repair.
RETRY_S: Final = (5.0, 60.0)
#: The pause after an unexpected error.
FAILED_REST_S: Final = 5.0
#: The pause after each step, as a multiple of the time of the step.
_RESTS: Final = 9

logger = logging.getLogger(__name__)


class LogScrubber:
    """The checks of one broker's logs; ``run`` it while the broker serves."""

    def __init__(self, replica_manager: ReplicaManager, repairer: RangeRepairer) -> None:
        self._replica_manager = replica_manager
        self._repairer = repairer
        self._config = replica_manager.broker_config
        self._woken = asyncio.Event()
        self._suspected: dict[tuple[TopicPartition, int], Suspicion] = {}
        #: The times of the last checks of suspected segments.
        self._checked_s: dict[tuple[TopicPartition, int], float] = {}
        self._pass: Iterator[tuple[Partition, Segment]] | None = None
        self._began_s: float | None = None
        self._unrepaired: dict[TopicPartition, None] = {}
        self._retry_s, self._retry_at_s = RETRY_S[0], 0.0

    def suspect(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        """Check a segment soon."""
        key = topic_partition, suspicion.base_offset
        if key in self._suspected:
            if self._suspected[key] != suspicion:
                self._suspected[key] = Suspicion(suspicion.base_offset, None)
        elif len(self._suspected) < SUSPECTED_MAX:
            self._suspected[key] = suspicion
        self._woken.set()

    def settings_changed(self) -> None:
        """The broker's settings may have changed."""
        if self._config is not self._replica_manager.broker_config:
            self._config = self._replica_manager.broker_config
            self._woken.set()

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about damage: the ranges that are damaged now."""
        found: dict[str, list[str]] = {}
        for partition in self._replica_manager:
            for segment, damaged_range in partition.log.damage.ranges:
                found.setdefault(str(partition.topic_partition), []).append(
                    str(damaged_range.error(segment.log_path))
                )
        return {"damaged_ranges": found, "segments_suspected": len(self._suspected)}

    async def run(self) -> None:
        """Check until cancelled; an unexpected error only delays the next check."""
        started_s = _now_s()
        while True:
            try:
                await self._do_due_work(started_s)
            except Exception:
                logger.exception("a check for damage failed; the next one follows")
                await asyncio.sleep(FAILED_REST_S)

    async def _do_due_work(self, started_s: float) -> None:
        """Do the due work of each kind, with at most one segment of each."""
        await self._check_suspected()
        if self._unrepaired and _now_s() >= self._retry_at_s:
            await self._repair_again()
        next_s = self._next_pass_s(started_s)
        if self._pass is None and next_s is not None and _now_s() >= next_s:
            self._pass, self._began_s = self._segments(), _now_s()
        if self._pass is not None:
            await self._scrub_next(self._pass)
            return
        self._woken.clear()
        await self._rest_until(next_s)

    def _next_pass_s(self, started_s: float) -> float | None:
        interval_ms = self._replica_manager.broker_config.log_scrub_interval_ms
        if interval_ms < 0:
            return None
        if self._began_s is None:
            return started_s + min(interval_ms / 1000, FIRST_PASS_S)
        return self._began_s + interval_ms / 1000

    async def _rest_until(self, next_s: float | None) -> None:
        moments = [self._due_s(key) for key in self._suspected]
        moments += [] if next_s is None else [next_s]
        moments += [self._retry_at_s] if self._unrepaired else []
        rest_s = max(min(moments) - _now_s(), 0.001) if moments else None
        try:
            async with asyncio.timeout(rest_s):  # wait_for can lose a cancellation
                await self._woken.wait()
        except TimeoutError:
            return

    # the check of all segments

    def _segments(self) -> Iterator[tuple[Partition, Segment]]:
        for partition in self._replica_manager:
            for segment in tuple(partition.log.damage.sealed()):
                yield partition, segment

    async def _scrub_next(self, segments: Iterator[tuple[Partition, Segment]]) -> None:
        partition, segment = next(segments, (None, None))
        if partition is None or segment is None:
            self._pass = None
            self._replica_manager.counters.scrub_passes += 1
            return
        if await self._check(partition, segment, meanwhile=True):
            await self._check_indexes(partition, segment)

    async def _check_indexes(self, partition: Partition, segment: Segment) -> None:
        """Check the indexes of a sound log file against ``.stats``; rebuild them if they differ."""
        if segment.stats_pending or segment.indexes.unflushed:
            return
        tp = partition.topic_partition
        try:
            await self._replica_manager.log_workers.run(
                tp, partition.log.statistics.check_again(segment)
            )
        except SparklogError as error:
            logger.warning("the indexes of %s could not be checked: %s", segment.log_path, error)

    # suspicions

    async def _check_suspected(self) -> None:
        """Check one suspected segment; checks of all of them could delay the other work."""
        now_s = _now_s()
        key = next((k for k in self._suspected if now_s >= self._due_s(k)), None)
        if key is None:
            return
        suspicion = self._suspected.pop(key)
        self._checked_s = {
            k: at_s for k, at_s in self._checked_s.items() if at_s + CHECK_AGAIN_S > now_s
        }
        self._checked_s[key] = now_s
        await self._check_one(key[0], suspicion)

    def _due_s(self, key: tuple[TopicPartition, int]) -> float:
        return self._checked_s.get(key, -CHECK_AGAIN_S) + CHECK_AGAIN_S

    async def _check_one(self, tp: TopicPartition, suspicion: Suspicion) -> None:
        partition = self._replica_manager.get(tp)
        segment = partition.log.damage.segment(suspicion.base_offset) if partition else None
        if partition is None or segment is None:
            return
        log = partition.log
        if log.damage.is_active(segment):
            if log.truncating or log.offline is not None or not segment.size:
                return
            try:
                # A sealed segment can be checked and repaired while appends go on.
                log.roll(self._replica_manager.now_ms())
            except StorageError as error:
                logger.warning("%s is not checked for damage: %s", segment.log_path, error)
                return
            self._replica_manager.carry_out(partition.plan_flush(self._replica_manager.now_ms()))
        await self._check(partition, segment, around=suspicion.offset)

    async def _check(
        self,
        partition: Partition,
        segment: Segment,
        *,
        around: int | None = None,
        meanwhile: bool = False,
    ) -> bool:
        """Check a segment; return whether the check reached its end and the segment is sound.

        With ``meanwhile``, suspected segments are checked between the steps.
        """
        log = partition.log
        generation = log.damage.generation
        scrub = SegmentScrub(
            segment.files_at_rest(),
            epochs=log.leader_epochs.entries,
            end_offset=segment.next_offset,
            around=around,
        )

        def is_current() -> bool:
            return (
                self._replica_manager.get(partition.topic_partition) is partition
                and not log.truncating
                and log.offline is None
                and log.damage.holds(segment)
                and log.damage.generation == generation
            )

        while is_current():
            began_s = _now_s()
            try:
                walked = await run_blocking(scrub.check_more)
            except StorageError as error:
                if is_current():
                    failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                    self._replica_manager.report_error(partition.topic_partition, failure)
                return False
            if not is_current():
                return False
            self._replica_manager.counters.scrub_bytes += walked
            self._note_damage(partition, segment, scrub)
            await self._repair_all(partition, segment)
            if not walked:
                return not segment.damaged
            await self._throttle(walked, _now_s() - began_s)
            if meanwhile:
                await self._check_suspected()
        return False

    def _note_damage(self, partition: Partition, segment: Segment, scrub: SegmentScrub) -> None:
        """Note the ranges that a step found damaged, and the ranges that are sound again."""
        damage = partition.log.damage
        for damaged_range in segment.damaged:
            passed = scrub.began <= damaged_range.position and damaged_range.end <= scrub.position
            if passed and not any(damaged_range.overlaps(each) for each in scrub.found):
                damage.replace(segment, damaged_range)
        for each in scrub.take_new():
            if damage.add(segment, each):
                self._replica_manager.counters.damaged_ranges_found += 1
                logger.error("%s: %s", partition.topic_partition, each.error(segment.log_path))

    async def _throttle(self, walked: int, took_s: float) -> None:
        rate = self._replica_manager.broker_config.log_scrub_io_max_bytes_per_second
        await asyncio.sleep(max(walked / rate, took_s * _RESTS))

    # repairs

    async def _repair_all(self, partition: Partition, segment: Segment) -> None:
        """Repair the ranges of a segment that were not tried before."""
        tried = partition.log.damage.unrepairable
        for damaged in [each for each in segment.damaged if each not in tried]:
            if not await self._repairer.repair(partition, segment, damaged):
                self._retry_later(partition.topic_partition)

    def _retry_later(self, tp: TopicPartition) -> None:
        if not self._unrepaired:
            self._retry_s = RETRY_S[0]
            self._retry_at_s = _now_s() + self._retry_s
        self._unrepaired[tp] = None

    async def _repair_again(self) -> None:
        still: dict[TopicPartition, None] = {}
        for tp in self._unrepaired:
            partition = self._replica_manager.get(tp)
            for segment, damaged in partition.log.damage.ranges if partition else ():
                assert partition is not None
                if not await self._repairer.repair(partition, segment, damaged):
                    still[tp] = None
        self._unrepaired = still
        self._retry_s = min(self._retry_s * 2, RETRY_S[1])
        self._retry_at_s = _now_s() + self._retry_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()
