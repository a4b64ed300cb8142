"""The replication of one broker: its followers fetch, and its leaders check their ISRs.

Owns: the fetchers, the AlterPartition requests, and the counters of ISR changes.  Must not know how
a replica decides, or how requests travel.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from sparklog.client.connection import Connection
from sparklog.errors import ErrorCode
from sparklog.executors.log import Suspicion
from sparklog.executors.partition import IsrProposal, Partition
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.executors.replication.alter_partition_sender import (
    AlterPartitions,
    AlterPartitionSender,
)
from sparklog.executors.replication.clean_offsets import CleanOffsets
from sparklog.executors.replication.local_starts import LocalStarts
from sparklog.executors.replication.log_scrubber import LogScrubber
from sparklog.executors.replication.range_repairer import RangeRepairer
from sparklog.executors.replication.replica_fetcher import (
    FetcherTools,
    RemoteStart,
    no_remote_start,
)
from sparklog.executors.replication.replica_fetcher_manager import ReplicaFetcherManager
from sparklog.executors.replication.replica_reads import ReplicaReads
from sparklog.executors.replication.tiered_states import TieredStates
from sparklog.metadata import PartitionImage
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.alter_partition import ResponsePartitionData

#: Seconds between two checks of leaders whose ISR lacks a replica.
LACKING_CHECK_S = 1.0

logger = logging.getLogger(__name__)


class Replication:
    """The replication of one broker; ``run`` it while the broker serves, then ``close`` it."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        *,
        connect: Callable[[Endpoint], Awaitable[Connection]],
        broker_epoch: Callable[[], int],
        alter_partitions: AlterPartitions,
        remote_start: RemoteStart = no_remote_start,
    ) -> None:
        self._replica_manager = replica_manager
        #: Leaders whose connection has just broken.
        self.suspected_brokers = SuspectedBrokers(replica_manager.monotonic_ms)
        tools = FetcherTools(
            replica_manager=replica_manager,
            connect=connect,
            broker=lambda broker_id: replica_manager.image.broker(broker_id),
            broker_epoch=broker_epoch,
            suspected_brokers=self.suspected_brokers,
            remote_start=remote_start,
        )
        self._fetchers = ReplicaFetcherManager(tools)
        self._sender = AlterPartitionSender(alter_partitions, self._isr_answered)
        self._scrubber = LogScrubber(replica_manager, RangeRepairer(tools))
        self._clean_offsets = CleanOffsets(tools)
        self.tiered_states = TieredStates(tools)
        self.local_starts = LocalStarts(tools)
        self.replica_reads = ReplicaReads(tools)
        replica_manager.replication_events.connect(self)

    async def run(self) -> None:
        """Replicate until cancelled; raises the error of a part that failed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetchers.run())
            tasks.create_task(self._sender.run())
            tasks.create_task(self._maybe_shrink_or_expand_isrs())
            tasks.create_task(self._scrubber.run())

    async def close(self) -> None:
        """Stop the fetchers."""
        await self._fetchers.close()

    def image_changed(self) -> None:
        """The cluster image has changed: leaders may have moved, and settings may have changed."""
        self._fetchers.reconnect_to_moved_leaders()
        self._scrubber.settings_changed()

    async def lowest_clean_offset(self, partition: Partition) -> int:
        """See ``CleanOffsets.lowest``."""
        return await self._clean_offsets.lowest(partition)

    def as_json(self) -> dict[str, Any]:
        """The replication part of NodeStatus."""
        led = [p.state for p in self._replica_manager if p.is_leader and p.state is not None]
        return {
            "partitions_followed": len(self._fetchers),
            "leaders_followed": self._fetchers.leaders,
            "under_replicated": sum(len(state.isr) < len(state.replicas) for state in led),
            **self._scrubber.as_json(),
        }

    # calls of the replica manager

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        self._count(partition, before)
        self._fetchers.update_fetcher_for_partition(partition)

    async def stop_fetching(self, topic_partition: TopicPartition) -> None:
        await self._fetchers.remove_fetcher_and_await_truncation(topic_partition)

    def submit_alter_partition(self, topic_partition: TopicPartition) -> None:
        partition = self._replica_manager.get(topic_partition)
        if partition is not None:
            self._sender.submit(partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        partition = self._replica_manager.get(topic_partition)
        if partition is not None:
            self._fetchers.update_fetcher_for_partition(partition)

    def check_damage(self, topic_partition: TopicPartition, suspicion: Suspicion) -> None:
        self._scrubber.suspect(topic_partition, suspicion)

    # leading

    async def _maybe_shrink_or_expand_isrs(self) -> None:
        """Check periodically which followers must leave the ISR and which may join it."""
        lag_s = self._replica_manager.broker_config.replica_lag_time_max_ms / 2000
        loop = asyncio.get_running_loop()
        whole_at = loop.time() + lag_s
        while True:
            await asyncio.sleep(min(LACKING_CHECK_S, lag_s))
            whole = loop.time() >= whole_at
            if whole:
                whole_at = loop.time() + lag_s
            now_ms = self._replica_manager.monotonic_ms()
            for partition in self._replica_manager:
                state = partition.state
                if not partition.is_leader or state is None or len(state.replicas) < 2:
                    continue
                if whole or len(state.isr) < len(state.replicas):
                    self._replica_manager.carry_out(partition.maybe_shrink_or_expand_isr(now_ms))

    def _isr_answered(
        self, partition: Partition, proposal: IsrProposal, answer: ResponsePartitionData
    ) -> None:
        error, before, after = ErrorCode.of(answer.error_code), partition.state, None
        if error is not ErrorCode.NONE:
            tp = partition.topic_partition
            logger.debug("%s keeps its in-sync replicas: %s", tp, error.name)
        elif before is not None:
            after = replace(
                before,
                leader=answer.leader_id,
                leader_epoch=answer.leader_epoch,
                isr=answer.isr,
                partition_epoch=answer.partition_epoch,
            )
        now_ms = self._replica_manager.monotonic_ms()
        self._replica_manager.carry_out(partition.isr_answered(proposal, error, after, now_ms))
        self._count(partition, before)

    def _count(self, partition: Partition, before: PartitionImage | None) -> None:
        """Count a change of the ISR of a partition that this broker leads."""
        after, counters = partition.state, self._replica_manager.counters
        if not partition.is_leader or before is None or after is None:
            return
        if before.leader_epoch != after.leader_epoch or before.isr == after.isr:
            return
        counters.isr_shrinks += not set(before.isr) <= set(after.isr)
        counters.isr_expands += not set(after.isr) <= set(before.isr)
        logger.info("%s: in sync are %s", partition.topic_partition, list(after.isr))
