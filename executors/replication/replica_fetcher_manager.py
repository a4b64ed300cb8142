"""The fetchers of a broker, one per leader of its follower replicas (``ReplicaFetcherManager``).

Owns: the fetchers and their tasks, and running truncations.  Must not know how a fetch works, or
how a log is truncated.
"""

import asyncio
import logging

from sparklog.errors import KafkaError, SparklogError
from sparklog.executors.partition import EpochEnd, Partition, TieredStart, Truncated
from sparklog.executors.replication.fetch_session_handler import (
    Diverged,
    Misplaced,
    MovedToTieredStorage,
    OffsetOutOfRange,
)
from sparklog.executors.replication.replica_fetcher import FetcherTools, ReplicaFetcher
from sparklog.executors.replication.start_searches import StartSearches
from sparklog.executors.replication.tiered_states import TieredStates
from sparklog.types import NO_NODE, TopicPartition

logger = logging.getLogger(__name__)


class ReplicaFetcherManager:
    """The fetchers of one broker; ``close`` stops them."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._truncations: dict[TopicPartition, asyncio.Task[None]] = {}
        self._start_searches = StartSearches(
            TieredStates(tools).find_start,
            start=self._begin_truncation,
            try_later=self._delay_partition,
            on_end=self._end_with,
        )
        self._tasks: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._closed = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        """The number of replicas that have a fetcher."""
        return len(self._leaders)

    @property
    def leaders(self) -> int:
        """The number of leaders that these replicas fetch from."""
        return len(self._fetchers)

    async def run(self) -> None:
        """Wait for a fetcher that fails with a bug; network and disk errors do not end it."""
        await self._ended

    def update_fetcher_for_partition(self, partition: Partition) -> None:
        """Fetch from the partition's current leader; stop when there is none, or it is this broker.

        Call this when the role may have changed (``addFetcherForPartitions``).
        """
        tp, leader_id = partition.topic_partition, partition.leader
        if partition.is_leader or leader_id == NO_NODE:
            self.remove_fetcher_for_partition(tp)
            return
        if self._closed:  # a flush or a truncation has ended since
            return
        if self._leaders.get(tp, leader_id) != leader_id:
            self.remove_fetcher_for_partition(tp)
        self._leaders[tp] = leader_id
        self._fetcher(leader_id).add_partition(partition)

    def remove_fetcher_for_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition (``removeFetcherForPartitions``)."""
        leader_id = self._leaders.pop(topic_partition, None)
        if leader_id is None:
            return
        self._start_searches.cancel(topic_partition)
        fetcher = self._fetchers[leader_id]
        fetcher.remove_partition(topic_partition)
        if not fetcher:
            del self._fetchers[leader_id]
            self._tasks[fetcher].cancel()

    def reconnect_to_moved_leaders(self) -> None:
        """Connect again to each leader whose address is another one in the new cluster image."""
        for fetcher in self._fetchers.values():
            fetcher.reconnect_if_leader_moved()

    async def remove_fetcher_and_await_truncation(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition, and wait for a running truncation of its log."""
        self.remove_fetcher_for_partition(topic_partition)
        truncation = self._truncations.get(topic_partition)
        if truncation is not None:
            await asyncio.wait([truncation])

    async def close(self) -> None:
        """Stop all fetchers, and wait for running truncations."""
        self._closed = True
        self._start_searches.cancel_all()
        self._fetchers.clear()
        self._leaders.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._truncations.values(), return_exceptions=True)

    # truncations

    def _truncate(self, found: Misplaced[Partition]) -> None:
        if isinstance(found, MovedToTieredStorage):
            self._start_searches.begin(found)
        else:
            self._begin_truncation(found)

    def _begin_truncation(
        self, found: Misplaced[Partition], start: TieredStart | None = None
    ) -> None:
        tp = found.replica.topic_partition
        if tp not in self._truncations:
            task = self._truncations[tp] = asyncio.create_task(self._truncate_one(found, start))
            task.add_done_callback(self._end_with)

    async def _truncate_one(self, found: Misplaced[Partition], start: TieredStart | None) -> None:
        replica_manager, partition = self._tools.replica_manager, found.replica
        tp = partition.topic_partition
        truncated = None
        try:
            truncated = await self._begin_again(found, start)
        except SparklogError as error:
            logger.warning("%s is not truncated: %s", tp, error)
            if isinstance(error, KafkaError):
                replica_manager.report_error(tp, error)
        finally:
            del self._truncations[tp]
        if truncated is not None:
            replica_manager.counters.truncations += 1
            dropped = truncated.end_before - truncated.end_after
            replica_manager.counters.offsets_truncated += max(dropped, 0)
        if tp not in self._leaders:
            return
        self.update_fetcher_for_partition(partition)  # a role may have waited for this
        if partition.fetch_position() == found.position:
            self._delay_partition(tp)

    def _delay_partition(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self._leaders:
            self._fetchers[self._leaders[topic_partition]].delay_partition(topic_partition)

    async def _begin_again(
        self, found: Misplaced[Partition], start: TieredStart | None
    ) -> Truncated | None:
        """Truncate the log to where it can go on from.  Raises SparklogError."""
        truncations, partition = self._tools.replica_manager.truncations, found.replica
        epoch = found.position.current_leader_epoch
        match found:
            case Diverged():
                diverging = EpochEnd(found.epoch, found.end_offset)
                return await truncations.truncate(partition, diverging, leader_epoch=epoch)
            case OffsetOutOfRange():
                return await truncations.truncate_fully_and_start_at(
                    partition, found.log_start_offset, leader_epoch=epoch
                )
            case MovedToTieredStorage():
                assert start is not None
                return await truncations.start_in_tier(partition, start, leader_epoch=epoch)

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
