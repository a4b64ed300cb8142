"""The limits of searches for offsets by timestamp: running and waiting.

Owns: the bounds, which keep worker threads free for flushes and one client from delaying others.
Must not know how a log or a bucket is searched.

Each part of a search decodes a bounded number of bytes in a worker thread
(``wire/records/record_search.py``).  SEARCHES_AT_ONCE parts of all searches run at the same
time, so their memory is bounded as a whole.  LONG_PARTS_AT_ONCE of them are long parts, which
decode a batch of any size: searches of ordinary batches do not wait for these.  A connection has at
most CONNECTION_SEARCHES searches that compete for these places, or search in the bucket; its other
searches wait until these have ended.  BUCKET_SEARCHES_AT_ONCE searches are in the bucket at the
same time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import LongPart, Steps
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.transport import ServerConnection
from sparklog.types import OffsetTimestamp, TopicPartition

#: Half of the worker threads (``blocking.WORKERS_MAX``): flushes go on beside searches.
SEARCHES_AT_ONCE: Final = 2
#: Those of them that decode whole batches beyond SEARCH_BYTES_MAX.
LONG_PARTS_AT_ONCE: Final = 1
#: Half of the threads of the process beside the broker: reads of the bucket go on beside searches.
#: A search that nobody waits for any more has its place until the process has answered.
BUCKET_SEARCHES_AT_ONCE: Final = 4
#: Searches of one connection that may run or wait for a place.
CONNECTION_SEARCHES: Final = 2
#: Searches of all connections together that may run or wait.
SEARCHES_MAX: Final = 20_000

_STATE_KEY: Final = "offset searches"


class OffsetSearches:
    """The searches of one broker."""

    def __init__(self, log_workers: LogWorkers) -> None:
        self._log_workers = log_workers
        self._parts = asyncio.Semaphore(SEARCHES_AT_ONCE)
        self._long_parts = asyncio.Semaphore(LONG_PARTS_AT_ONCE)
        self._bucket = asyncio.Semaphore(BUCKET_SEARCHES_AT_ONCE)
        self._in_bucket: set[asyncio.Future[OffsetTimestamp | None]] = set()
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
                return await self._log_workers.run(topic_partition, search, self._place)
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
                await self._bucket.acquire()
                task = asyncio.ensure_future(search())
                task.add_done_callback(self._end_in_bucket)
                self._in_bucket.add(task)
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the remote_dir has not answered in {timeout_s} s"
            ) from error

    def _end_in_bucket(self, task: asyncio.Future[OffsetTimestamp | None]) -> None:
        self._bucket.release()
        self._in_bucket.discard(task)
        if not task.cancelled():
            task.exception()  # there may be nobody left to hear of it

    @asynccontextmanager
    async def _place(self, part: Callable[[], Any]) -> AsyncIterator[None]:
        """Wait for a place for a part of a search."""
        long_parts = self._long_parts if isinstance(part, LongPart) else nullcontext()
        async with long_parts, self._parts:
            yield

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
