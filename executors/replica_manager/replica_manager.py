"""The partitions of one broker: opened, led, closed and deleted as the cluster image says.

Owns: which logs are open, and the way effects are carried out.  Must not know requests or how the
image arrives.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import assert_never
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import FileCache, Log
from sparklog.executors.log_dirs import (
    BrokerDir,
    DiskWatch,
    LogCheckpoints,
    LogDirs,
    LogWatch,
    StrayDirs,
    delete_partition_dir,
)
from sparklog.executors.partition import (
    Effect,
    FlushLog,
    Partition,
    ProducerStateManager,
    ProposeIsr,
    ResumeFetching,
    WakeDeleters,
    WakeFollowers,
    WakeReaders,
    WakeWriters,
    WriteStatistics,
)
from sparklog.executors.replica_manager.bounded_gather import bounded_gather
from sparklog.executors.replica_manager.delayed_operations import DelayedOperations
from sparklog.executors.replica_manager.dynamic_config import DynamicConfig
from sparklog.executors.replica_manager.failed_logs import FailedLogs
from sparklog.executors.replica_manager.listener import NoReplicationListener, ReplicationListener
from sparklog.executors.replica_manager.log_closing import close_log
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.executors.replica_manager.lost_replicas import LostReplicas
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.offset_searches import OffsetSearches
from sparklog.executors.replica_manager.record_validation import RecordValidations
from sparklog.executors.replica_manager.replication_quota import ReplicationThrottle
from sparklog.executors.replica_manager.storage_errors import StorageErrors
from sparklog.executors.replica_manager.truncations import Truncations
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import MAX_INT32, TopicPartition

logger = logging.getLogger(__name__)


class ReplicaManager:
    """All replicas of this broker; what is synchronous does not block for long."""

    def __init__(
        self,
        *,
        node_id: int,
        folders: LogDirs,
        settings: Mapping[str, str],
        counters: BrokerMetrics,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.node_id = node_id
        self.image = ClusterImage()
        self.counters = counters
        self.storage_errors = StorageErrors(now_ms, self._suspect)
        self.now_ms = now_ms
        #: For what has to do with how long ago something was: the time of day may jump.
        self.monotonic_ms = monotonic_ms
        self.folders = folders
        #: Set when none of the folders works any more.
        self.disks_gone = asyncio.Event()
        #: Called when a log has failed: the controller is to know at once.
        self.on_failure: Callable[[], None] = lambda: None
        self._settings = DynamicConfig(node_id, settings)
        self.throttle = ReplicationThrottle(node_id, lambda: self.broker_config)
        self.delayed_operations = DelayedOperations(
            lambda: self.broker_config.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(random_bytes(4)) & MAX_INT32,
        )
        self._files = FileCache(self.broker_config.log_open_files_max)
        self._log_flusher = LogFlusher(
            now_ms, self.carry_out, self.delayed_operations.timers, self._suspect
        )
        self._disks = DiskWatch(self._fail_folder)
        names, look = lambda: iter(tuple(self._partitions)), self._suspect_disk
        self.log_watch = LogWatch(
            self.get, names, self._files, on_loss=self.fail_log, on_trouble=look
        )
        self.checkpoints = LogCheckpoints(
            folders, lambda folder: [p.log for p in self.partitions_in(folder)], self._disks.suspect
        )
        self.log_workers = LogWorkers()
        self.searches = OffsetSearches(self.log_workers)
        self.validations = RecordValidations(self)
        self.truncations = Truncations(
            checkpoints=self.checkpoints,
            log_flusher=self._log_flusher,
            log_workers=self.log_workers,
            carry_out=self.carry_out,
            now_ms=now_ms,
        )
        self.strays = StrayDirs(node_id, folders, self.checkpoints)
        self.lost = LostReplicas(node_id, folders, self.checkpoints)
        #: Told of what concerns the replicas on other brokers.
        self.replicating: ReplicationListener = NoReplicationListener()
        self._partitions: dict[TopicPartition, Partition] = {}
        self.failed = FailedLogs(node_id)
        #: A folder of another topic has their name.
        self._unopened: dict[TopicPartition, None] = {}
        #: Version of the image that was applied last, and whether with ``lead``.
        self._applied: tuple[int, bool] | None = None
        self._applying = asyncio.Lock()
        self._opened_before = False
        self._led_before = False

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def broker_config(self) -> BrokerConfig:
        """Another object after every change."""
        return self._settings.broker

    @property
    def offline(self) -> dict[TopicPartition, SparklogError]:
        """Replicas that do not work, and why."""
        unusable = {p.topic_partition: p.log.offline for p in self if p.log.offline is not None}
        return {**unusable, **self.failed.errors()}

    # lookup

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def find(self, topic: str, number: int) -> Partition:
        """Raises what Kafka answers for a partition that is not here."""
        tp = TopicPartition(topic, number)
        partition = self._partitions.get(tp)
        if partition is not None:
            return partition
        failed = self.failed.get(tp)
        if failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failed.error))
        if self.image.partition(tp) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.node_id} has no replica of {tp}"
        )

    def partitions_in(self, folder: BrokerDir) -> list[Partition]:
        """The open partitions that lie in one of the broker's folders."""
        return [p for p in self if self.folders.find(p.topic_partition) is folder]

    def topic_name(self, topic_id: UUID | None) -> str:
        """Raises UNKNOWN_TOPIC_ID."""
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
        return topic.name

    # effects

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case WakeReaders():
                    self.delayed_operations.wake_readers(effect.topic_partition, effect.size)
                case WakeWriters():
                    self.delayed_operations.writers.wake(effect.topic_partition)
                case WakeFollowers():
                    self.delayed_operations.wake_followers(effect.topic_partition, effect.size)
                case WakeDeleters():
                    self.delayed_operations.deleters.wake(effect.topic_partition)
                case FlushLog():
                    partition = self._partitions.get(effect.topic_partition)
                    if partition is not None:
                        self._log_flusher.plan(partition, effect.at_ms)
                case WriteStatistics():
                    partition = self._partitions.get(effect.topic_partition)
                    if partition is not None:
                        self.log_workers.measure(partition.log)
                case ProposeIsr():
                    self.replicating.propose(effect.topic_partition)
                case ResumeFetching():
                    self.replicating.resume(effect.topic_partition)
                case _:
                    assert_never(effect)

    def report_error(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """A request met trouble; who waits for the partition learns that it is offline."""
        self.storage_errors.report_error(topic_partition, error)

    def fail_log(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """This open replica's log works no more: refuse requests, tell the controller, and copy the
        leader's log where ``error`` means that this one is lost."""
        partition = self._partitions.get(topic_partition)
        if partition is None or not self.failed.takes(topic_partition, error):
            return
        self.log_watch.suspect(topic_partition)
        partition.log.fail(error)
        self._note_failure(topic_partition, partition.topic_id, error)
        self._suspect_disk(topic_partition)
        asyncio.get_running_loop().call_soon(
            self.delayed_operations.wake_everybody, topic_partition
        )

    def _note_failure(self, tp: TopicPartition, topic_id: UUID, error: SparklogError) -> None:
        self.failed.add(tp, topic_id, error, self.image.partition(tp))
        self.on_failure()

    # the image

    async def apply(self, image: ClusterImage, *, lead: bool) -> None:
        """Make the open partitions those of the image, looking at what changed since the last one.

        Without ``lead`` no role is taken, so that nothing is served yet.
        """
        async with self._applying:
            await self._apply(image, lead)

    async def open_again(self) -> bool:
        """Open what a folder is in the way of, if that can be deleted or put aside now: a topic
        had the name before, or a log was lost, and the disk refused.  Whether anything was opened.

        The image changes while this waits.  What changed is for ``apply``, whose caller knows
        whether this broker may lead then; it opens these too.
        """
        async with self._applying:
            before, image = len(self._partitions), self.image
            if self._applied != (image.version, True):
                return False
            here = image.partitions_of(self.node_id)
            topic_ids = {tp: self._topic_id(tp) for tp in self._unopened if tp in here}
            for tp, topic_id in topic_ids.items():
                await self.strays.remove_one(tp, topic_id)
            due = self._unopened or self.failed.due(self.image)
            if not due or self._applied != (self.image.version, True):
                return False
            await self._apply(self.image, lead=True)
            return len(self._partitions) > before

    async def _apply(self, image: ClusterImage, lead: bool) -> None:
        is_another = image is not self.image
        version, self.image = image.version, image
        touched, hosted = self._touched(image, lead), image.partitions_of(self.node_id)
        wanted = {tp: (self._topic_id(tp), hosted[tp]) for tp in touched if tp in hosted}
        await self._remove(self._gone(touched, wanted), keep=is_another)
        if lead:
            await self._put_aside_lost(image)
        known = {*self._partitions, *self.failed}
        missing = [(tp, topic_id) for tp, (topic_id, _) in wanted.items() if tp not in known]
        await bounded_gather(self._open, missing, self._threads)
        await self.checkpoints.note(tp for tp, _ in missing if tp in self._partitions)
        self._opened_before = True
        self._led_before = self._led_before or lead
        for tp, (_, state) in wanted.items():
            await self._update(tp, state, lead)
        self.delayed_operations.deleters.wake_all()  # brokers that are gone are not waited for
        self._applied = (version, lead)

    def drop_roles(self) -> None:
        """Serve nothing any more, because this broker's right to serve has ended."""
        for partition in self:
            held = partition.state
            self.carry_out(partition.resign())
            self.replicating.role_changed(partition, held)

    # end

    async def close(self) -> list[BrokerDir]:
        """Flush and close every log, write the checkpoints; the folders where all went well."""
        self.delayed_operations.close()
        for partition in self:
            await self._settle(partition)
        partitions = tuple(self)
        closing = partial(close_log, now_ms=self.now_ms, counters=self.counters)
        closed = await bounded_gather(closing, partitions, self._threads)
        unwell = [p.topic_partition for p, well in zip(partitions, closed, strict=True) if not well]
        try:
            await self.checkpoints.write()
        except StorageError as error:
            logger.error("the stop is not clean: %s", error)
            return []
        finally:
            await self.log_watch.close()
            await self.lost.close()
            await self._disks.close()
        homes = [self.folders.find(tp) for tp in (*unwell, *self.failed)]
        return [folder for folder in self.folders if folder not in homes]

    @property
    def _threads(self) -> int:
        """Logs that are opened or closed at the same time."""
        folders = max(len(self.folders.working), 1)
        return self.broker_config.num_recovery_threads_per_data_dir * folders

    # opening and removing

    def _topic_id(self, tp: TopicPartition) -> UUID:
        topic = self.image.topic(tp.topic)
        assert topic is not None
        return topic.topic_id

    def _touched(self, image: ClusterImage, lead: bool) -> Iterable[TopicPartition]:
        """The partitions to look at, each once."""
        config = self.broker_config
        self._settings.follow(image)
        unopened, self._unopened = self._unopened, {}
        if self._applied is not None and self._applied[1] == lead and self.broker_config is config:
            touched = image.touched_after(self._applied[0])
            if touched is not None:
                return dict.fromkeys((*touched, *unopened, *self.failed))
        everything = (*self._partitions, *self.failed, *image.partitions_of(self.node_id))
        return dict.fromkeys(everything)

    def _gone(
        self,
        touched: Iterable[TopicPartition],
        wanted: Mapping[TopicPartition, tuple[UUID, PartitionImage]],
    ) -> list[TopicPartition]:
        """What is here under the name of a partition that was deleted, moved or made anew."""
        gone: list[TopicPartition] = []
        for tp in touched:
            replica = self._partitions.get(tp) or self.failed.get(tp)
            here = replica and replica.topic_id
            if here is not None and (tp not in wanted or wanted[tp][0] != here):
                gone.append(tp)
        return gone

    async def _open(self, missing: tuple[TopicPartition, UUID]) -> None:
        tp, topic_id = missing
        producers = ProducerStateManager(tp)
        config = self._settings.of_topic(self.image, tp.topic)
        try:
            # What was there before this process led anything may lie on a disk that is missing.
            folder = self.folders.home(tp, is_new=self._led_before)
            log = await run_blocking(
                Log.open,
                folder.half,
                f"{folder.path}/{tp}",
                topic_partition=tp,
                config=config,
                files=self._files,
                producers=producers,
                now_ms=self.now_ms(),
                clean=folder.clean and not self._opened_before,
                recovery_point=folder.recovery_points.get(tp, 0),
                log_start_offset=folder.log_starts.get(tp, 0),
                topic_id=topic_id,
                must_exist=tp in folder.recovery_points,
            )
        except (CorruptLogError, StorageError) as error:
            self._note_failure(tp, topic_id, error)
            self._suspect_disk(tp)
            return
        except KafkaError as error:
            # The folder of a topic that had the same name; it is removed as a stray, or later.
            logger.warning("%s is not opened: %s", tp, error)
            self._unopened[tp] = None
            return
        self.counters.count_recovery(log.recovery)
        partition = self._partitions[tp] = Partition(
            topic_partition=tp,
            topic_id=topic_id,
            node_id=self.node_id,
            log=log,
            producers=producers,
            config=config,
            lag_time_max_ms=self.broker_config.replica_lag_time_max_ms,
            live_epoch=self._live_epoch,
        )
        self.carry_out(partition.opened(self.now_ms()))
        log.damage.watch(lambda suspicion: self.replicating.check_damage(tp, suspicion))

    async def _remove(self, gone: Collection[TopicPartition], *, keep: bool) -> None:
        """Close them, forget them on the disk, then delete their folders, or ``keep`` these as
        strays: no commit says that the partitions go, they are only not in another image."""
        doomed: list[tuple[BrokerDir, TopicPartition, UUID]] = []
        for tp in gone:
            failed = self.failed.remove(tp)
            partition = self._partitions.pop(tp, None)
            folder = self.folders.find(tp)
            if partition is not None:
                await self._let_go(partition)
            replica = partition or failed
            if folder in self.folders.working and replica:
                doomed.append((folder, tp, replica.topic_id))
            self.folders.forget(tp)
            if self.image.topic(tp.topic) is None:
                self.counters.forget_topic(tp.topic)
                self._settings.forget_topic(tp.topic)
        if not doomed:
            return
        try:
            # A partition of the same name may come back: it must not inherit recovery points.
            await self.checkpoints.write()
            if keep:
                await self.strays.remove([(folder, str(tp)) for folder, tp, _ in doomed])
                return
            for folder, tp, topic_id in doomed:
                await run_blocking(
                    delete_partition_dir, folder.half, folder.path, str(tp), topic_id
                )
                await self.lost.remove_remains(folder, tp, topic_id)
        except StorageError as error:
            logger.error("folders of deleted partitions stay: %s", error)
            for folder, tp, _ in doomed:
                self.folders.remember(tp, folder)

    async def _let_go(self, partition: Partition) -> None:
        """Whoever waits finds the partition gone and answers so."""
        tp = partition.topic_partition
        await self.replicating.let_go(tp)
        self.delayed_operations.wake_everybody(tp)
        await self._settle(partition)
        partition.log.close(self.now_ms(), clean=False)

    async def _settle(self, partition: Partition) -> None:
        """Nothing works on the partition's log any more."""
        await self.validations.settle(partition)
        await self.truncations.settle(partition.topic_partition)
        await self._log_flusher.settle(partition)
        await self.log_workers.settle(partition.topic_partition)

    async def _put_aside_lost(self, image: ClusterImage) -> None:
        """Make room for new logs in place of lost ones: others lead, or nothing is to be kept."""
        accepted = await self.lost.accepted(self.failed.sole(image), self.broker_config)
        for tp in (*self.failed.due(image), *accepted):
            partition, failed = self._partitions.pop(tp, None), self.failed.get(tp)
            if partition is not None:
                await self._let_go(partition)
            # No offset that somebody may remember is given to another record.
            end = 0 if tp not in accepted or partition is None else partition.log.log_end_offset
            begin_at = max(end, accepted.get(tp, 0))
            if failed is not None and await self.lost.put_aside(tp, failed.topic_id, begin_at):
                self.failed.remove(tp)

    def _live_epoch(self, broker_id: int) -> int | None:
        broker = self.image.broker(broker_id)
        return None if broker is None or broker.fenced else broker.broker_epoch

    # disks

    def _suspect(self, tp: TopicPartition) -> None:
        partition = self._partitions.get(tp)
        if partition is not None and partition.log.offline is not None:
            self.fail_log(tp, partition.log.offline)
        else:
            self.log_watch.suspect(tp)
            self._suspect_disk(tp)

    def _suspect_disk(self, tp: TopicPartition) -> None:
        folder = self.folders.find(tp)
        if folder in self.folders.working:
            self._disks.suspect(folder)

    async def _fail_folder(self, folder: BrokerDir, error: StorageError) -> None:
        """Its replicas go offline, the others go on."""
        lost = [self._partitions.pop(tp, None) for tp in self.folders.fail(folder, error)]
        for partition in filter(None, lost):
            self._note_failure(partition.topic_partition, partition.topic_id, error)
        for partition in filter(None, lost):
            await self._let_go(partition)
        if not self.folders.working:
            self.disks_gone.set()

    # roles

    async def _update(self, tp: TopicPartition, state: PartitionImage, lead: bool) -> None:
        """Have it follow the image, if it is open."""
        partition = self._partitions.get(tp)
        if partition is not None and lead and partition.state is None:
            await self.truncations.repair(partition, state.leader_epoch)
            partition = self._partitions.get(tp)  # its disk may have failed meanwhile
        if partition is None:
            return
        config = self._settings.of_topic(self.image, tp.topic)
        if config != partition.config:
            self.carry_out(partition.configure(config, self.now_ms()))
        held = partition.state
        if lead and held is not state:
            self.carry_out(partition.take_role(state, self.monotonic_ms()))
            self.replicating.role_changed(partition, held)
            self.lost.role_changed(partition)
