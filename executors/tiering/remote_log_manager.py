"""The tiered partitions of a broker: copies by leaders, remote retention, and what followers know.

It does the work of Kafka's ``RemoteLogManager``.  Owns: which partition is looked after, when, and
in which order its log and its manifest change.  Must not know how an object is written, or where
the process for the remote_dir runs.

A leader takes the manifest over before anything else, then copies sealed segments below the last
stable offset, one after the other.  The log start moves in the log first and in the manifest then,
so nothing is deleted in the bucket that the log still shows.  A bucket that is away costs local
disk only: every step is repeated at the next look.

Four loops run beside one another: new leaders take over, segments are copied, what is too old is
deleted, and followers learn from leaders.  None of them waits for copies but that of the copies.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import EpochEntry
from sparklog.executors.partition import Partition, TieredState
from sparklog.executors.replica_manager import RemoteSizes, ReplicaManager
from sparklog.executors.tiering.copy_plan import copy_lag_bytes, leader_log_of
from sparklog.executors.tiering.leadership import Leadership, remote_partition
from sparklog.executors.tiering.leaving import AskReplicas, RemoteLeaving
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_process import RemoteLogs
from sparklog.executors.tiering.repeated_looks import repeat
from sparklog.executors.tiering.segment_copier import SegmentCopier
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.remote_log.manifest_log import DeposedLeaderError
from sparklog.remote_log.service import (
    CollectedGarbage,
    FollowerState,
    MissingManifestError,
    RemoteLogState,
    SweptOrphans,
)
from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

#: Partitions that are looked after at the same time.
AT_ONCE: Final = 8
#: Milliseconds from the first look of a leader to its first search for orphans, between two, and
#: from one that failed to the next.
FIRST_SWEEP_MS: Final = 3_600_000
SWEEP_EVERY_MS: Final = 24 * 3_600_000
SWEEP_AGAIN_MS: Final = 3_600_000
#: The age of an orphan, in milliseconds: a day.
ORPHAN_MS: Final = 24 * 3_600_000
#: Seconds between two lines about the same partition that cannot be copied.
LOG_EVERY_S: Final = 300.0
#: Milliseconds between two lines about objects of a partition that the store does not delete.
LOG_REFUSALS_EVERY_MS: Final = 24 * 3_600_000
REFUSAL: Final = (
    "%s has objects in the remote_dir that it does not need any more, and the store refuses to "
    "delete them: %s; everything else is deleted, and these are tried again. If a lock or a "
    "retention rule of the store protects them, wait for its end; otherwise let the brokers delete "
    "them (s3:DeleteObject, or the rights of the folder; docs/tiering.md)"
)
#: What helps against a damaged segment.
DAMAGE_REMEDY: Final = (
    "; the segments from there on stay on the brokers' disks until another replica repairs the "
    "damage or leads, or until the retention of the whole log passes it; if no replica is sound, "
    "delete the records below the end of that segment (DeleteRecords)"
)


#: Asks a leader about partitions that it leads.
AskLeader: TypeAlias = Callable[
    [int, Iterable[Partition]], Awaitable[Mapping[Partition, TieredState | SparklogError]]
]

logger = logging.getLogger(__name__)


class _RoleEndedError(SparklogError):
    """The broker has led the partition in another leader epoch, or not at all, since a call."""


class RemoteLogManager:
    """The tiering of one broker; ``run`` it while the broker serves."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        remote: RemoteLogs,
        *,
        ask_leader: AskLeader,
        ask_replicas: AskReplicas,
        random_bytes: Callable[[int], bytes],
        metrics: TieringMetrics,
    ) -> None:
        self._replica_manager = replica_manager
        self._remote = remote
        self._ask_leader = ask_leader
        self._led: dict[TopicPartition, Leadership] = {}
        self.metrics = metrics
        #: The next look follows at once: a role or the settings have changed.
        self._look_again = asyncio.Event()
        self._told_at: dict[TopicPartition, float] = {}
        self._leaving = RemoteLeaving(
            ask_replicas,
            call=self._call,
            take_state=self._take_state,
            advance_log_start=self._advance_log_start,
            follow_log_start=self._follow_log_start,
            tell=self._tell,
            now_ms=self._now_ms,
        )
        self._copier = SegmentCopier(
            replica_manager,
            remote,
            led_partitions=self._begun,
            may_copy=self._may_copy,
            call=self._call,
            take_state=self._take_state,
            follow_log_start=self._follow_log_start,
            failed=self._take_error,
            random_bytes=random_bytes,
            metrics=metrics,
        )
        replica_manager.replication_events.add_role_listener(self)

    # calls of the replica manager

    def image_changed(self, image: ClusterImage) -> None:
        """See ``RoleListener``."""

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """See ``RoleListener``.

        A new leader looks at once, because the log start may be known in the manifest alone.
        """
        is_new = before is None or before.leader_epoch != partition.leader_epoch
        if is_new and partition.is_leader and partition.config.may_be_remote:
            self._look_again.set()

    def config_changed(self, partition: Partition) -> None:
        """See ``RoleListener``.  A topic that was switched off is looked at at once."""
        if partition.is_leader and partition.config.leaves_remote_storage:
            self._look_again.set()

    def partition_closing(self, partition: Partition) -> None:
        """See ``RoleListener``."""
        self._led.pop(partition.topic_partition, None)
        self._told_at.pop(partition.topic_partition, None)
        self._remote.forget(remote_partition(partition))

    # state

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about tiering."""
        led = self._led.values()
        return {
            **self.metrics.as_json(),
            "remote_partitions_led": len(self._led),
            "remote_segments": sum(each.state.segments for each in led if each.state),
            "remote_bytes": sum(each.state.remote_bytes for each in led if each.state),
            "remote_copy_lag_bytes": sum(map(copy_lag_bytes, self._tiered(led=True))),
        }

    def remote_sizes(self, partition: Partition) -> RemoteSizes | None:
        """The sizes of a partition; None while this broker has not taken its manifest over."""
        led = self._led.get(partition.topic_partition)
        if led is None or led.state is None or not self._still_leads(led):
            return None
        return RemoteSizes(led.state.remote_bytes, copy_lag_bytes(partition))

    async def run(self) -> None:
        """Look after the partitions until cancelled."""

        def interval_ms() -> int:
            return self._replica_manager.broker_config.remote_log_manager_task_interval_ms

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat(self._take_over_all, interval_ms, self._look_again))
            tasks.create_task(repeat(self._clean_up_all, interval_ms))
            tasks.create_task(repeat(self._learn_from_leaders, interval_ms))
            tasks.create_task(self._copier.run())

    async def look_after_all(self) -> None:
        """Do all the work once."""
        await self._take_over_all()
        await self._copier.copy_all()
        await self._clean_up_all()
        await self._learn_from_leaders()

    async def _take_over_all(self) -> None:
        """Look after every led partition, except for copies and deletions."""
        self._forget_others()
        found = [self._leadership(partition) for partition in self._tiered(led=True)]
        await self._for_each(self._take_over, (led for led in found if led is not None))
        self._copier.wake()

    async def _clean_up_all(self) -> None:
        await self._for_each(self._clean_up, self._led.values())

    async def _for_each(
        self, look: Callable[[Leadership], Awaitable[None]], partitions: Iterable[Leadership]
    ) -> None:
        """Change the manifest of each partition, without copies."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def look_after(led: Leadership) -> None:
            async with gate, led.changing:
                if led.is_deposed or not self._is_current(led):
                    return
                try:
                    await look(led)
                except Exception as error:
                    self._take_error(led, error)

        async with asyncio.TaskGroup() as tasks:
            for led in list(partitions):
                tasks.create_task(look_after(led))

    def _begun(self) -> Iterable[Leadership]:
        """The partitions whose manifests this broker has taken over."""
        return [
            led
            for led in self._led.values()
            if led.state is not None and not led.is_deposed and self._is_current(led)
        ]

    def _tiered(self, *, led: bool) -> Iterable[Partition]:
        return (
            partition
            for partition in self._replica_manager
            if partition.config.may_be_remote
            and partition.is_leader == led
            and partition.log.offline is None
        )

    def _forget_others(self) -> None:
        for tp, led in list(self._led.items()):
            if not self._still_leads(led) or not led.partition.config.may_be_remote:
                del self._led[tp]
                if not led.partition.is_leader:
                    self._remote.forget(remote_partition(led.partition))

    def _still_leads(self, led: Leadership) -> bool:
        partition = led.partition
        return (
            self._replica_manager.get(partition.topic_partition) is partition
            and partition.is_leader
            and partition.leader_epoch == led.leader_epoch
        )

    def _is_current(self, led: Leadership) -> bool:
        """Whether no other value is used for this partition."""
        return self._led.get(led.partition.topic_partition) is led and self._still_leads(led)

    # leading

    async def _take_over(self, led: Leadership) -> None:
        """Take the manifest over, or look what has changed since."""
        if led.state is None:
            await self._begin(led)
        else:
            # Part of it is forgotten when a topic is switched off, or the role is dropped.
            await self._take_state(led, led.state)
        if led.partition.config.leaves_remote_storage or self._leaving.is_removing(led):
            await self._leaving.leave(led)
        await self._follow_log_start(led)

    async def _clean_up(self, led: Leadership) -> None:
        """Delete what is too old, and what no manifest names, also while copies fail."""
        if led.state is None:
            await self._begin(led)
        await self._apply_retention(led)
        await self._follow_log_start(led)
        try:
            await self._collect_garbage(led)
        except StorageError as error:
            self._take_error(led, error)
        await self._sweep_orphans(led)

    def _take_error(self, led: Leadership, error: Exception) -> None:
        tp = led.partition.topic_partition
        if isinstance(error, _RoleEndedError):
            return
        if isinstance(error, DeposedLeaderError):
            led.is_deposed = True
            logger.warning("%s is not tiered by this broker any more: %s", tp, error)
            return
        self.metrics.failures += 1
        if isinstance(error, SparklogError):
            self._tell(tp, error)
        else:
            message = "the tiering of %s failed; that of other partitions goes on"
            logger.error(message, tp, exc_info=error)

    def _leadership(self, partition: Partition) -> Leadership | None:
        """What is known in the leader epoch of now.

        None if the role has ended while the partition waited for its turn: another broker may lead
        in the leader epoch that this one follows in.
        """
        led = self._led.get(partition.topic_partition)
        if led is None or not self._still_leads(led):
            sweep_at_ms = self._replica_manager.monotonic_ms() + FIRST_SWEEP_MS
            led = Leadership(partition, partition.leader_epoch, sweep_at_ms)
            if not self._still_leads(led):
                return None
            self._led[partition.topic_partition] = led
        return led

    async def _call(self, led: Leadership, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call about a led partition.  Raises SparklogError, also when the role has ended."""
        self._require_role(led)
        partition = remote_partition(led.partition)
        try:
            result = await self._remote.call(method, partition, *args, **kwargs)
        except Exception:
            # Whether a change was made may be unknown, so the manifest is looked at again.
            led.state = None
            raise
        self._require_role(led)
        return result

    def _require_role(self, led: Leadership) -> None:
        if not self._is_current(led):
            raise _RoleEndedError("this broker does not lead the partition any more")

    async def _begin(self, led: Leadership) -> None:
        """Take the manifest over, and make log and manifest agree."""
        await self._restore_epochs(led)
        leader_log = leader_log_of(led.partition.log)
        state = await self._call(
            led, "begin_leadership", led.leader_epoch, self.nonce, leader_log, self._now_ms()
        )
        await self._take_state(led, state)

    @property
    def nonce(self) -> str:
        """The name of this broker in a manifest, which outlives the process.

        No other broker has it, not even the one of the same id in a cluster that was started from a
        copy of the journal.
        """
        manager = self._replica_manager
        return f"broker-{manager.node_id}-{manager.log_dirs.directory_id}"

    async def _restore_epochs(self, led: Leadership) -> None:
        """Restore the leader epochs below the local log start, if some of them are lost.

        Without a segment that holds the records before the local log start there is nothing to
        restore: the log starts there, which the manifest tells.
        """
        log = led.partition.log
        local_start = log.local_log_start_offset
        is_known = log.leader_epochs.epoch_at(log.log_start_offset) != NO_LEADER_EPOCH
        if local_start <= log.log_start_offset or is_known:
            return
        try:
            state: FollowerState = await self._call(
                led, "follower_state", local_start, leader_epoch=led.leader_epoch
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return
        entries = [EpochEntry(*each) for each in state.leader_epochs]
        log.leader_epochs.take_over(entries, local_start)

    async def _take_state(self, led: Leadership, state: RemoteLogState) -> None:
        led.state = state
        log = led.partition.log
        counts = led.partition.config.remote_storage_enable and not self._leaving.is_removing(led)
        end = min(state.end_offset, log.log_end_offset) if counts else 0
        log.tiered_end_offset = max(end, 0)
        if state.log_start_offset > log.log_start_offset:
            await self._advance_log_start(led, state.log_start_offset)

    def _may_copy(self, led: Leadership) -> bool:
        return (
            self._is_current(led)
            and not led.is_deposed
            and led.partition.config.copies_segments
            and not self._leaving.is_removing(led)
        )

    async def _apply_retention(self, led: Leadership) -> None:
        """Move the log start by age and size of the whole log, both tiers together."""
        log, config = led.partition.log, led.partition.config
        if led.state is None or not config.deletes:
            return
        offset, end = NO_OFFSET, led.state.end_offset
        if led.state.segments:
            offset = await self._call(
                led,
                "retained_from",
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                local_bytes_above=sum(s.size for s in log.segments if s.base_offset >= end),
                now_ms=self._now_ms(),
            )
        else:
            # What is not copied, or cannot be, does not expire with the segments in the bucket.
            offset = log.expired_offset(self._now_ms(), led.partition.unclamped_last_stable_offset)
        if offset > log.log_start_offset:
            await self._advance_log_start(led, offset)

    async def _advance_log_start(self, led: Leadership, offset: int) -> None:
        """Move the log start up to what every replica may lose.  Raises SparklogError."""
        self._require_role(led)
        partition, log, tp = led.partition, led.partition.log, led.partition.topic_partition
        offset = min(offset, partition.high_watermark)

        def move() -> None:
            if self._still_leads(led) and not log.truncating:
                log.advance_log_start(min(offset, log.log_end_offset))

        await self._replica_manager.checkpoints.write({tp: offset}, then=move)
        self._replica_manager.delayed_operations.complete_all(tp)

    async def _follow_log_start(self, led: Leadership) -> None:
        """Tell the manifest where the log starts: segments below become garbage."""
        start = led.partition.log.log_start_offset
        if led.state is not None and start > led.state.log_start_offset:
            args = led.leader_epoch, start, self._now_ms()
            await self._take_state(led, await self._call(led, "move_log_start", *args))

    async def _collect_garbage(self, led: Leadership) -> None:
        delay_ms = self._replica_manager.broker_config.remote_object_delete_delay_ms
        collected: CollectedGarbage = await self._call(
            led, "collect_garbage", delay_ms, self._now_ms()
        )
        self.metrics.segments_deleted += collected.segments
        self._report_refusal(led, collected.error)

    async def _sweep_orphans(self, led: Leadership) -> None:
        """Once a day, delete what copies left that no manifest names."""
        if self._replica_manager.monotonic_ms() < led.sweep_at_ms:
            return
        led.sweep_at_ms = self._replica_manager.monotonic_ms() + SWEEP_AGAIN_MS
        swept: SweptOrphans = await self._call(led, "sweep_orphans", self._now_ms(), ORPHAN_MS)
        led.sweep_at_ms += SWEEP_EVERY_MS - SWEEP_AGAIN_MS
        self.metrics.orphans_deleted += swept.deleted
        self._report_refusal(led, swept.error)

    def _report_refusal(self, led: Leadership, error: str) -> None:
        """Count a refused deletion, which ``error`` tells of unless it is empty.

        The lock of an object may last for years, so the line comes once a day.
        """
        if not error:
            return
        self.metrics.failures += 1
        now_ms, logged_ms = self._replica_manager.monotonic_ms(), led.refusal_logged_ms
        if logged_ms is None or now_ms - logged_ms >= LOG_REFUSALS_EVERY_MS:
            led.refusal_logged_ms = now_ms
            logger.warning(REFUSAL, led.partition.topic_partition, error)

    # following

    async def _learn_from_leaders(self) -> None:
        """Ask the leaders of tiered partitions what is in the bucket, for local retention."""
        by_leader: defaultdict[int, list[Partition]] = defaultdict(list)
        for partition in self._tiered(led=False):
            if partition.leader >= 0 and partition.config.remote_storage_enable:
                by_leader[partition.leader].append(partition)
        for leader, partitions in by_leader.items():
            before = {partition: _knowledge(partition) for partition in partitions}
            for partition, told in (await self._ask_leader(leader, partitions)).items():
                if isinstance(told, SparklogError) or _knowledge(partition) != before[partition]:
                    continue
                log = partition.log
                log.tiered_end_offset = min(told.tiered_end_offset, log.log_end_offset)

    # small things

    def _now_ms(self) -> int:
        return self._replica_manager.now_ms()

    def _tell(self, tp: TopicPartition, error: SparklogError) -> None:
        """Log a failure, each partition's at most every few minutes."""
        now_s = self._replica_manager.monotonic_ms() / 1000
        if now_s - self._told_at.get(tp, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._told_at[tp] = now_s
            level, remedy = logging.WARNING, ""
            if isinstance(error, MissingManifestError):
                level = logging.ERROR
            elif isinstance(error, CorruptLogError):
                level, remedy = logging.ERROR, DAMAGE_REMEDY
            logger.log(level, "%s is behind in the remote_dir: %s%s", tp, error, remedy)


def _knowledge(partition: Partition) -> tuple[int, int]:
    """What is known of the bucket holds while this stays: the leader, and the topic is tiered."""
    return partition.leader_epoch, partition.log.remote_disable_count
