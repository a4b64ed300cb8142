"""Searches for where followers start anew whose next records are only in the bucket (KIP-405).

Owns: the running searches, their end when the replica stops following, and how often a failure is
logged.  Must not know what the bucket holds, or how a log is truncated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.executors.partition import Partition, TieredStart
from sparklog.executors.replication.fetch_session_handler import MovedToTieredStorage
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


class StartSearches:
    """The searches of one broker's followers, at most one for each replica.

    ``find_start`` asks the leader and the bucket; raises SparklogError.  ``start`` gets what it
    found, unless the replica has another fetch position meanwhile, or its topic was switched off;
    ``try_later`` the replicas whose search has failed, and ``on_end`` every task that has ended.
    """

    def __init__(
        self,
        find_start: Callable[[Partition], Awaitable[TieredStart]],
        *,
        start: Callable[[MovedToTieredStorage[Partition], TieredStart], None],
        try_later: Callable[[TopicPartition], None],
        on_end: "Callable[[asyncio.Task[None]], None]",
    ) -> None:
        self._find_start = find_start
        self._start = start
        self._try_later = try_later
        self._on_end = on_end
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        #: The replicas whose last search has failed, by leader epoch.
        self._failed: dict[TopicPartition, int] = {}

    def begin(self, moved: MovedToTieredStorage[Partition]) -> None:
        """Search for the start of a replica, unless a search is running."""
        tp = moved.replica.topic_partition
        if tp not in self._tasks:
            task = self._tasks[tp] = asyncio.get_running_loop().create_task(self._search(moved))
            task.add_done_callback(self._on_end)

    def _fail(self, moved: MovedToTieredStorage[Partition], error: SparklogError) -> None:
        """The replica cannot start now; the first failure in a leader epoch is a warning."""
        tp, epoch = moved.replica.topic_partition, moved.position.current_leader_epoch
        level = logging.DEBUG if self._failed.get(tp) == epoch else logging.WARNING
        self._failed[tp] = epoch
        logger.log(
            level,
            "the earlier records of %s are in the bucket only, and its replica here cannot start "
            "there; it tries again: %s", tp, error,
        )  # fmt: skip
        self._try_later(tp)

    def cancel(self, topic_partition: TopicPartition) -> None:
        """The replica does not follow this leader any more."""
        self._failed.pop(topic_partition, None)
        task = self._tasks.pop(topic_partition, None)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """The broker stops."""
        for topic_partition in list(self._tasks):
            self.cancel(topic_partition)

    async def _search(self, moved: MovedToTieredStorage[Partition]) -> None:
        replica, tp = moved.replica, moved.replica.topic_partition
        disable_count = replica.log.remote_disable_count
        found: TieredStart | SparklogError
        try:
            found = await self._find_start(replica)
        except SparklogError as error:
            found = error
        finally:
            if self._tasks.get(tp) is asyncio.current_task():
                del self._tasks[tp]
        if replica.fetch_position() != moved.position:
            return
        if replica.log.remote_disable_count != disable_count:
            # What was found may be deleted by now, even if the topic is tiered again.
            found = KafkaError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "the topic was switched off meanwhile"
            )
        if isinstance(found, SparklogError):
            self._fail(moved, found)
        else:
            self._failed.pop(tp, None)
            self._start(moved, found)
