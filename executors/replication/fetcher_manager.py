"""The fetchers of a broker: one per leader that replicas of this broker follow.

Owns: the fetchers and their tasks, and running truncations.  Must not know how a fetch works, or
how a log is truncated.
"""

import asyncio
import logging

from sparklog.errors import KafkaError, SparklogError
from sparklog.executors.partition import EpochEnd, Partition
from sparklog.executors.replication.fetch_session_handler import Diverged, FellBehind
from sparklog.executors.replication.fetcher import FetcherTools, ReplicaFetcher
from sparklog.types import NO_NODE, TopicPartition

logger = logging.getLogger(__name__)


class FetcherManager:
    """The fetchers of one broker; ``close`` stops them."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._truncations: dict[TopicPartition, asyncio.Task[None]] = {}
        self._tasks: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._closed = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        """How many replicas follow another broker."""
        return len(self._leaders)

    @property
    def leaders(self) -> int:
        """How many brokers these replicas follow."""
        return len(self._fetchers)

    async def run(self) -> None:
        """Wait for a fetcher that fails with a bug; network and disk errors do not end it."""
        await self._ended

    def look_at(self, partition: Partition) -> None:
        """Follow the current leader of a partition, or nobody; the role may have changed."""
        tp, leader_id = partition.topic_partition, partition.leader
        if partition.is_leader or leader_id == NO_NODE:
            self.leave(tp)
            return
        if self._closed:  # a flush or a truncation has ended since
            return
        if self._leaders.get(tp, leader_id) != leader_id:
            self.leave(tp)
        self._leaders[tp] = leader_id
        self._fetcher(leader_id).follow(partition)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stop to follow a leader."""
        leader_id = self._leaders.pop(topic_partition, None)
        if leader_id is None:
            return
        fetcher = self._fetchers[leader_id]
        fetcher.leave(topic_partition)
        if not fetcher:
            del self._fetchers[leader_id]
            self._tasks[fetcher].cancel()

    def look_for_leaders(self) -> None:
        """The cluster image has changed: leaders may have moved."""
        for fetcher in self._fetchers.values():
            fetcher.look_for_leader()

    async def let_go(self, topic_partition: TopicPartition) -> None:
        """Stop to follow a leader, and wait for a running truncation of the log."""
        self.leave(topic_partition)
        truncation = self._truncations.get(topic_partition)
        if truncation is not None:
            await asyncio.wait([truncation])

    async def close(self) -> None:
        """Stop all fetchers, and wait for running truncations."""
        self._closed = True
        self._fetchers.clear()
        self._leaders.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._truncations.values(), return_exceptions=True)

    # truncations

    def _truncate(self, found: Diverged[Partition] | FellBehind[Partition]) -> None:
        tp = found.replica.topic_partition
        if tp not in self._truncations:
            task = self._truncations[tp] = asyncio.create_task(self._truncate_one(found))
            task.add_done_callback(self._end_with)

    async def _truncate_one(self, found: Diverged[Partition] | FellBehind[Partition]) -> None:
        replica_manager, partition = self._tools.replica_manager, found.replica
        tp, epoch = partition.topic_partition, found.position.current_leader_epoch
        truncated = None
        try:
            if isinstance(found, Diverged):
                diverging = EpochEnd(found.epoch, found.end_offset)
                truncated = await replica_manager.truncations.cut(
                    partition, diverging, leader_epoch=epoch
                )
            else:
                truncated = await replica_manager.truncations.start_over(
                    partition, found.log_start_offset, leader_epoch=epoch
                )
        except SparklogError as error:
            logger.warning("%s is not truncated: %s", tp, error)
            if isinstance(error, KafkaError):
                replica_manager.report_error(tp, error)
        finally:
            del self._truncations[tp]
        if truncated is not None:
            replica_manager.counters.truncations += 1
            replica_manager.counters.offsets_truncated += truncated.end_before - truncated.end_after
        if tp not in self._leaders:
            return
        self.look_at(partition)  # a role may have waited for this
        if tp in self._leaders and partition.fetch_position() == found.position:
            self._fetchers[self._leaders[tp]].delay(tp)

    # fetchers

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                leader_id, self._tools, self._truncate
            )
            task = self._tasks[fetcher] = asyncio.create_task(fetcher.run())
            task.add_done_callback(self._end_with)
            task.add_done_callback(lambda _: self._tasks.pop(fetcher))
        return fetcher

    def _end_with(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._ended.done():
            self._ended.set_exception(error)
