"""The replicas of one broker, put together from the parts that open, change and close them.

Owns: how the parts know each other, looking partitions up, and the order of the end.  Must not know
requests or how the image arrives.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import FileCache
from sparklog.executors.log_dirs import BrokerDir, LogDirs
from sparklog.executors.partition import (
    Appended,
    Effect,
    Partition,
    SentBatch,
    TransactionEnd,
)
from sparklog.executors.replica_manager.bounded_gather import bounded_gather
from sparklog.executors.replica_manager.bucket_recoveries import BucketRecoveries
from sparklog.executors.replica_manager.delayed_operations import DelayedOperations
from sparklog.executors.replica_manager.dynamic_config import DynamicConfig
from sparklog.executors.replica_manager.effect_runner import EffectRunner
from sparklog.executors.replica_manager.failed_logs import FailedLogs
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.image_applier import ImageApplier
from sparklog.executors.replica_manager.listener import ReplicationEvents
from sparklog.executors.replica_manager.log_closing import close_log
from sparklog.executors.replica_manager.log_failure_handler import LogFailureHandler
from sparklog.executors.replica_manager.log_manager import LogManager
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.offset_searches import OffsetSearches
from sparklog.executors.replica_manager.partition_opener import PartitionOpener
from sparklog.executors.replica_manager.partition_remover import PartitionRemover
from sparklog.executors.replica_manager.record_validation import RecordValidations
from sparklog.executors.replica_manager.remote_reads import (
    NoRemoteReads,
    RemoteReads,
    RemoteSizes,
    no_remote_sizes,
)
from sparklog.executors.replica_manager.replication_quota import ReplicationThrottle
from sparklog.executors.replica_manager.role_changes import RoleChanges
from sparklog.executors.replica_manager.segment_replacements import SegmentReplacements
from sparklog.executors.replica_manager.storage_errors import StorageErrorLogger
from sparklog.executors.replica_manager.transaction_verifications import (
    TransactionVerifications,
    VerifyTransaction,
    no_coordinator,
)
from sparklog.executors.replica_manager.truncations import Truncations
from sparklog.metadata import ClusterImage
from sparklog.types import MAX_INT32, TopicPartition
from sparklog.wire.protocol.private import OfflineReplica
from sparklog.wire.records.batch import Buffer

logger = logging.getLogger(__name__)


class ReplicaManager:
    """All replicas of this broker.  Synchronous methods do not block for long."""

    def __init__(
        self,
        *,
        node_id: int,
        log_dirs: LogDirs,
        settings: Mapping[str, str],
        counters: BrokerMetrics,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        beat_now: Callable[[], None] = lambda: None,
        verify_transaction: VerifyTransaction = no_coordinator,
        open_files_max: int | None = None,
    ) -> None:
        """``beat_now`` sends the next heartbeat at once, which reports a failed log.

        ``verify_transaction`` asks the transaction coordinator.

        ``open_files_max`` is the most log files that are open at once, by default as in the
        settings.
        """
        self.node_id = node_id
        self.counters = counters
        self.now_ms = now_ms
        #: For durations, because the time of day may jump.
        self.monotonic_ms = monotonic_ms
        self.log_dirs = log_dirs
        self._partitions = partitions = HostedPartitions(node_id)
        self._settings = DynamicConfig(node_id, settings)
        self.throttle = ReplicationThrottle(node_id, lambda: self.broker_config)
        self.delayed_operations = DelayedOperations(
            lambda: self.broker_config.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(random_bytes(4)) & MAX_INT32,
        )
        #: Events for replication, which connects to them after its own start.
        self.replication_events = ReplicationEvents()
        self.files = files = FileCache(open_files_max or self.broker_config.log_open_files_max)
        self.failures = LogFailureHandler(
            partitions,
            log_dirs,
            files,
            self.delayed_operations,
            close_partition=self._close_partition,
            beat_now=beat_now,
            is_tiered=self._is_tiered,
        )
        self._log_manager = LogManager(
            node_id,
            log_dirs,
            files,
            logs_in=lambda log_dir: [p.log for p in self.partitions_in(log_dir)],
            on_refused_write=self.failures.disk_watch.suspect,
        )
        self.checkpoints, self.strays = self._log_manager.checkpoints, self._log_manager.strays
        self.log_workers = LogWorkers()
        self.searches = OffsetSearches(self.log_workers)
        self._storage_errors = StorageErrorLogger(now_ms)
        effects = EffectRunner(
            partitions,
            self.delayed_operations,
            self.log_workers,
            self.replication_events,
            now_ms=now_ms,
            on_failed_flush=self.failures.suspect,
        )
        #: Carry out the effects of a partition's decisions.  Nothing blocks.
        self.carry_out: Callable[[Iterable[Effect]], None] = effects.carry_out
        self._log_flusher = effects.log_flusher
        self.verifications = TransactionVerifications(
            self,
            verify_transaction,
            lambda: self.broker_config.transaction_partition_verification_enable,
        )
        self.validations = RecordValidations(self, self.verifications)
        self.truncations = Truncations(
            checkpoints=self.checkpoints,
            log_flusher=self._log_flusher,
            log_workers=self.log_workers,
            carry_out=self.carry_out,
            now_ms=now_ms,
        )
        #: For the cleaner.
        self.replacements = SegmentReplacements(
            log_flusher=self._log_flusher,
            log_workers=self.log_workers,
            is_open=lambda partition: partitions.get(partition.topic_partition) is partition,
            carry_out=self.carry_out,
            on_failure=self.failures.suspect,
            now_ms=now_ms,
        )
        #: The remote part of tiered logs; set before the broker serves.
        self.remote_reads: RemoteReads = NoRemoteReads()
        self.remote_sizes: Callable[[Partition], RemoteSizes | None] = no_remote_sizes
        #: For the tiering, which sets ``find_end`` and ``find_aborted``.
        self.recoveries = BucketRecoveries(
            self.truncations,
            on_failure=self.failures.suspect,
            apply_answers=self.open_again,
            carry_out=self.carry_out,
            now_ms=now_ms,
        )
        self._roles = RoleChanges(
            partitions,
            self._settings,
            self.truncations,
            self._log_manager.lost,
            self.recoveries,
            self.replication_events,
            carry_out=self.carry_out,
            now_ms=now_ms,
            monotonic_ms=monotonic_ms,
        )
        self._images = self._make_image_applier(beat_now)

    def _make_image_applier(self, beat_now: Callable[[], None]) -> ImageApplier:
        opener = PartitionOpener(
            self._partitions,
            self._log_manager,
            self.failures,
            self._settings,
            self.replication_events,
            self.counters,
            carry_out=self.carry_out,
            now_ms=self.now_ms,
        )
        remover = PartitionRemover(
            self._partitions,
            self.log_dirs,
            self._log_manager,
            close_partition=self._close_partition,
            forget_topic=self._forget_topic,
            is_tiered=self._is_tiered,
            recoveries=self.recoveries,
            beat_now=beat_now,
        )
        return ImageApplier(
            self._partitions,
            self._settings,
            opener=opener,
            remover=remover,
            roles=self._roles,
            strays=self.strays,
            delayed_operations=self.delayed_operations,
            replication=self.replication_events,
            recoveries=self.recoveries,
        )

    def _is_tiered(self, topic: str) -> bool:
        return self._settings.of_topic(self.image, topic).remote_storage_enable

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def image(self) -> ClusterImage:
        """The cluster image that was applied last."""
        return self._partitions.image

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings; another object after every change."""
        return self._settings.broker

    @property
    def failed(self) -> FailedLogs:
        """The replicas that are not open because their logs have failed."""
        return self._partitions.failed

    @property
    def offline(self) -> dict[TopicPartition, SparklogError]:
        """Replicas that do not work, and why."""
        return self._partitions.offline

    def offline_replicas(self) -> tuple[OfflineReplica, ...]:
        """The replicas that do not work, as every heartbeat and registration reports them."""
        return self._partitions.offline_replicas()

    # lookup

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition if it is open."""
        return self._partitions.get(topic_partition)

    def find(self, topic: str, number: int) -> Partition:
        """The open partition.  Raises what Kafka answers for a partition that is not here."""
        tp = TopicPartition(topic, number)
        partition = self._partitions.get(tp)
        if partition is None:
            raise self._partitions.missing_error(tp)
        return partition

    def partitions_in(self, log_dir: BrokerDir) -> list[Partition]:
        """The open partitions that lie in one of the broker's log directories."""
        return [p for p in self if self.log_dirs.find(p.topic_partition) is log_dir]

    def topic_name(self, topic_id: UUID | None) -> str:
        """Raises UNKNOWN_TOPIC_ID."""
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
        return topic.name

    def append_records(
        self,
        partition: Partition,
        batches: Sequence[SentBatch],
        *,
        now_ms: int,
        verified: bool = False,
    ) -> list[Appended | KafkaError]:
        """Append the batches of clients in their order, count them and carry out the effects.

        Each batch gets its own outcome; a KafkaError says that nothing was changed for the batch.
        """
        results = partition.append_all_as_leader(batches, now_ms=now_ms, verified=verified)
        self._appended(partition, results)
        return results

    def append_as_coordinator(self, partition: Partition, records: Buffer) -> Appended:
        """Append a batch of a transaction that a coordinator of this broker has written.

        Raises KafkaError, and then nothing has changed.
        """
        appended = partition.append_as_coordinator(records, now_ms=self.now_ms())
        self._appended(partition, (appended,))
        return appended

    def end_transaction(self, partition: Partition, end: TransactionEnd) -> Appended:
        """Append the marker that ends a transaction.

        Raises KafkaError, and then nothing has changed.
        """
        appended = partition.end_transaction(end, now_ms=self.now_ms())
        self.counters.markers_written += 1
        self._appended(partition, (appended,))
        return appended

    def _appended(self, partition: Partition, results: Iterable[Appended | KafkaError]) -> None:
        """Count the batches, and carry out the effects."""
        count = size = 0
        for result in results:
            if isinstance(result, Appended):
                if result.size:
                    count += 1
                    size += result.size
                if result.effects:
                    self.carry_out(result.effects)
        if count:
            self.counters.count_appends(partition.topic_partition.topic, count, size)

    # failures

    def report_error(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """A request has failed: a storage error is logged, and the log and its disk are checked.

        Other errors concern only the client.
        """
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.failures.suspect(topic_partition)
            self._storage_errors.log(topic_partition, error)

    def fail_log(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take this open replica offline: its log works no more.

        Requests are refused and the controller is told.  The leader's log is copied where ``error``
        means that this log is lost.
        """
        self.failures.fail_log(topic_partition, error)

    # the image

    async def apply(self, image: ClusterImage, *, lead: bool) -> None:
        """Open, close and change partitions as the image says, as far as the image has changed.

        Without ``lead`` no role is taken, so that nothing is served yet.
        """
        await self._images.apply(image, lead=lead)

    async def open_again(self) -> bool:
        """Open the partitions that could not be opened because another directory has their name.

        The directory is of an earlier topic of that name, or of a lost log, and a disk refused to
        rename it.  Returns whether a partition was opened.

        The image may change while this waits.  The change is left to ``apply``, whose caller knows
        whether this broker may lead then; ``apply`` opens these partitions too.
        """
        return await self._images.open_again()

    def drop_roles(self) -> None:
        """Serve nothing any more, because this broker's right to serve has ended."""
        self._roles.drop_all()

    def _forget_topic(self, topic: str) -> None:
        self.counters.forget_topic(topic)
        self._settings.forget_topic(topic)

    # end

    async def close(self) -> list[BrokerDir]:
        """Flush and close every log, and write the checkpoints.

        Returns the log directories in which every log was closed cleanly.
        """
        self.delayed_operations.close()
        await self.recoveries.close()
        for partition in self:
            await self._end_log_work(partition)
        partitions = tuple(self)
        closing = partial(close_log, now_ms=self.now_ms, counters=self.counters)
        threads = self._log_manager.recovery_threads(self.broker_config)
        closed = await bounded_gather(closing, partitions, threads)
        unwell = [p.topic_partition for p, well in zip(partitions, closed, strict=True) if not well]
        try:
            await self.checkpoints.write()
        except StorageError as error:
            logger.error("the stop is not clean: %s", error)
            return []
        finally:
            await self.failures.log_watch.close()
            await self._log_manager.lost.close()
            await self.failures.disk_watch.close()
        homes = [self.log_dirs.find(tp) for tp in (*unwell, *self.failed)]
        return [log_dir for log_dir in self.log_dirs if log_dir not in homes]

    async def _close_partition(self, partition: Partition) -> None:
        """Close a partition that is not hosted any more; its delayed operations end with errors."""
        tp = partition.topic_partition
        await self.replication_events.partition_closing(partition)
        self.delayed_operations.complete_all(tp)
        await self._end_log_work(partition)
        partition.log.close(self.now_ms(), clean=False)

    async def _end_log_work(self, partition: Partition) -> None:
        """End all work on the partition's log: validations, truncation, flushes, other threads."""
        await self.validations.refuse_waiting(partition)
        await self.verifications.refuse_waiting(partition)
        await self.truncations.wait_for_truncation(partition.topic_partition)
        await self.replacements.end_cleaning(partition.topic_partition)
        await self._log_flusher.end_flushes(partition)
        await self.log_workers.end_work(partition.topic_partition)
