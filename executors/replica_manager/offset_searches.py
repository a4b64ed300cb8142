"""The limits of searches for offsets by timestamp: running and waiting.

Owns: the bounds, which keep worker threads free for flushes and one client from delaying others.
Must not know how a log or a bucket is searched.

Each part of a search decodes a bounded number of bytes in a worker thread
(``wire/records/record_search.py``).  SEARCHES_AT_ONCE parts of all searches run at the same
time, so their memory is bounded as a whole.  A connection has at most CONNECTION_SEARCHES searches
that compete for these places, or search in the bucket; its other searches wait until these have
ended.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import Steps
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.transport import ServerConnection
from sparklog.types import OffsetTimestamp, TopicPartition

#: Half of the worker threads (``blocking.WORKERS_MAX``): flushes go on beside searches.
SEARCHES_AT_ONCE: Final = 2
#: Searches of one connection that may run or wait for a place.
CONNECTION_SEARCHES: Final = 2
#: Searches of all connections together that may run or wait.
SEARCHES_MAX: Final = 20_000

_STATE_KEY: Final = "offset searches"


class OffsetSearches:
    """The searches of one broker."""

    def __init__(self, log_workers: LogWorkers) -> None:
        self._log_workers = log_workers
        self._gate = asyncio.Semaphore(SEARCHES_AT_ONCE)
        self._count = 0

    async def run(
        self,
        connection: ServerConnection,
        topic_partition: TopicPartition,
        search: Steps[OffsetTimestamp | None],
    ) -> OffsetTimestamp | None:
        """The result of the search.  Raises REQUEST_TIMED_OUT at once when too many wait."""
        try:
            async with self._turn(connection):
                return await self._log_workers.run(topic_partition, search, self._gate)
        finally:
            search.close()

    async def run_remote(
        self,
        connection: ServerConnection,
        search: Callable[[], Awaitable[OffsetTimestamp | None]],
        timeout_s: float,
    ) -> OffsetTimestamp | None:
        """The result of a search in the bucket.

        Raises REQUEST_TIMED_OUT after the timeout in seconds, and at once when too many wait.
        """
        try:
            async with asyncio.timeout(timeout_s), self._turn(connection):
                return await search()
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the remote_dir has not answered in {timeout_s} s"
            ) from error

    @asynccontextmanager
    async def _turn(self, connection: ServerConnection) -> AsyncIterator[None]:
        """Wait for one of the connection's places."""
        if self._count >= SEARCHES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{SEARCHES_MAX} searches for offsets wait here"
            )
        turns: asyncio.Semaphore = connection.state.setdefault(
            _STATE_KEY, asyncio.Semaphore(CONNECTION_SEARCHES)
        )
        self._count += 1
        try:
            async with turns:
                yield
        finally:
            self._count -= 1
