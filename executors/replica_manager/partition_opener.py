"""Opening the partitions of which this broker has a replica.

Owns: the consequences of an opened log and of a failed one, and the partitions that wait until
their directory is free.  Must not know roles, or how the image arrives.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from sparklog.errors import CorruptLogError, KafkaError, StorageError
from sparklog.executors.partition import Effect, Partition, ProducerStateManager
from sparklog.executors.replica_manager.bounded_gather import bounded_gather
from sparklog.executors.replica_manager.dynamic_config import DynamicConfig
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.listener import ReplicationEvents
from sparklog.executors.replica_manager.log_failure_handler import LogFailureHandler
from sparklog.executors.replica_manager.log_manager import LogManager
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class PartitionOpener:
    """Opens partitions, and passes their effects to ``carry_out``."""

    def __init__(
        self,
        partitions: HostedPartitions,
        log_manager: LogManager,
        failures: LogFailureHandler,
        settings: DynamicConfig,
        replication: ReplicationEvents,
        counters: BrokerMetrics,
        *,
        carry_out: Callable[[Iterable[Effect]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._log_manager = log_manager
        self._failures = failures
        self._settings = settings
        self._replication = replication
        self._counters = counters
        self._carry_out = carry_out
        self._now_ms = now_ms
        #: Partitions whose name a directory of another topic has.
        self._unopened: dict[TopicPartition, None] = {}

    @property
    def unopened(self) -> Collection[TopicPartition]:
        """The partitions that could not be opened because of the directory of another topic."""
        return self._unopened

    def take_unopened(self) -> Collection[TopicPartition]:
        """Return ``unopened``, and clear it."""
        unopened, self._unopened = self._unopened, {}
        return unopened

    async def open_all(self, missing: Sequence[tuple[TopicPartition, UUID]], *, lead: bool) -> None:
        """Open these partitions of an image, several at a time, each with the id of its topic."""
        threads = self._log_manager.recovery_threads(self._settings.broker)
        await bounded_gather(self._open, missing, threads)
        opened = (tp for tp, _ in missing if self._partitions.get(tp) is not None)
        await self._log_manager.note_opened(opened, lead=lead)

    async def _open(self, missing: tuple[TopicPartition, UUID]) -> None:
        tp, topic_id = missing
        producers = ProducerStateManager(tp)
        config = self._settings.of_topic(self._partitions.image, tp.topic)
        try:
            log = await self._log_manager.open(
                tp, topic_id, config=config, producers=producers, now_ms=self._now_ms()
            )
        except (CorruptLogError, StorageError) as error:
            self._failures.record_failure(tp, topic_id, error)
            self._failures.suspect_disk(tp)
            return
        except KafkaError as error:
            # The directory of a topic that had the same name; it is removed as a stray, or later.
            logger.warning("%s is not opened: %s", tp, error)
            self._unopened[tp] = None
            return
        self._counters.count_recovery(log.recovery)
        partition = Partition(
            topic_partition=tp,
            topic_id=topic_id,
            node_id=self._partitions.node_id,
            log=log,
            producers=producers,
            config=config,
            lag_time_max_ms=self._settings.broker.replica_lag_time_max_ms,
            live_epoch=self._live_epoch,
        )
        self._partitions.add(partition)
        self._carry_out(partition.opened(self._now_ms()))
        log.damage.watch(lambda suspicion: self._replication.check_damage(tp, suspicion))

    def _live_epoch(self, broker_id: int) -> int | None:
        broker = self._partitions.image.broker(broker_id)
        return None if broker is None or broker.fenced else broker.broker_epoch
