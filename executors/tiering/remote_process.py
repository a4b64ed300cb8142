"""The process that talks to the remote_dir, as the broker sees it; or its work in this process.

Owns: the start of the process at the first call, and a new one after its end.  Must not know what a
call does.

The libraries of object stores need threads and memory, which stay out of the broker.  A store that
no other process sees (``memory:``) is used in this process, as in a simulation.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from sparklog.errors import StorageError
from sparklog.executors.tiering.message_channel import MessageChannel
from sparklog.process import Child, ChildError, python_command, spawn_child
from sparklog.remote_log.chunk_cache import ChunkCacheCounters
from sparklog.remote_log.service import RemoteLogService, RemotePartition
from sparklog.storage_backends.base import FileHandle
from sparklog.storage_backends.blocking import run_blocking

#: Seconds before a process is started again: the first and the longest pause.
RETRY_S: Final = (0.5, 30.0)
#: Seconds until a killed process is not waited for any more.
END_S: Final = 5.0

COMMAND: Final = tuple(python_command("sparklog.executors.tiering"))

#: Opens a file, by its name in a folder.  Raises StorageError.
OpenFile: TypeAlias = Callable[[str], FileHandle]

logger = logging.getLogger(__name__)


class RemoteLogs(Protocol):
    """Calls methods of ``RemoteLogService``.

    ``open_file`` opens a file of the cache, which what was read may be in; None without one.
    """

    open_file: OpenFile | None

    @property
    def cache(self) -> ChunkCacheCounters:
        """What the cache of reads has done since the broker's start."""

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises what the method raises, and StorageError when it cannot be called."""

    def forget(self, partition: RemotePartition) -> None:
        """Forget the manifest of a partition, soon, if it is open; see ``RemoteLogService``."""

    async def close(self) -> None:
        """End; calls that wait fail with StorageError."""


class InlineRemoteLogs:
    """Calls in worker threads of this process, where ``make`` makes the service."""

    open_file: OpenFile | None = None

    def __init__(self, make: Callable[[], RemoteLogService], cluster_id: str) -> None:
        self._make = make
        self._cluster_id = cluster_id
        self._service: RemoteLogService | None = None
        self._making = asyncio.Lock()

    @property
    def cache(self) -> ChunkCacheCounters:
        """See ``RemoteLogs``; there is none."""
        return ChunkCacheCounters()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        async with self._making:
            if self._service is None:
                service = self._make()
                await run_blocking(service.owner.check, self._cluster_id)
                self._service = service
        return await run_blocking(getattr(self._service, method), *args, **kwargs)

    def forget(self, partition: RemotePartition) -> None:
        if self._service is not None:
            self._service.forget(partition)

    async def close(self) -> None:
        """Nothing is left behind."""


class RemoteProcess:
    """Calls in a child process.

    Args:
        config: for ``sparklog.executors.tiering``; it may hold secrets, and goes to stdin only.
        open_file: see ``RemoteLogs``.
    """

    def __init__(self, config: Mapping[str, Any], open_file: OpenFile | None = None) -> None:
        self._config = dict(config)
        self.open_file = open_file
        self._child: Child | None = None
        self._channel: MessageChannel | None = None
        self._starting = asyncio.Lock()
        self._pause_s, self._not_before_s = RETRY_S[0], 0.0
        self._failure = ""
        self._closed = False
        #: Of the processes that have ended.
        self._earlier_cache = ChunkCacheCounters()

    @property
    def cache(self) -> ChunkCacheCounters:
        """See ``RemoteLogs``."""
        now = ChunkCacheCounters() if self._channel is None else self._channel.cache
        return now.added_to(self._earlier_cache)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        channel = self._channel
        if channel is None or not channel.is_open:
            channel = await self._start()
        return await channel.call(method, *args, **kwargs)

    def forget(self, partition: RemotePartition) -> None:
        if self._channel is not None and self._channel.is_open:
            # A process that ends has forgotten it, too.
            self._channel.call("forget", partition).add_done_callback(asyncio.Future.exception)

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            await self._end()

    async def _start(self) -> MessageChannel:
        async with self._starting:
            if self._closed:
                raise StorageError("the broker is stopping")
            if self._channel is not None and self._channel.is_open:
                return self._channel
            await self._end()
            now_s = asyncio.get_running_loop().time
            if now_s() < self._not_before_s:
                raise StorageError(self._failure)
            line = json.dumps(self._config)
            starting = asyncio.ensure_future(run_blocking(_spawn, line))
            try:
                self._child = await asyncio.shield(starting)
            except asyncio.CancelledError:
                starting.add_done_callback(_close_late)
                raise
            except ChildError as error:
                self._failure = f"the remote_dir cannot be used: {error}"
                self._not_before_s = now_s() + self._pause_s
                self._pause_s = min(self._pause_s * 2, RETRY_S[1])
                raise StorageError(self._failure) from error
            self._pause_s = RETRY_S[0]
            self._channel = MessageChannel(*self._child.descriptors)
            return self._channel

    async def _end(self) -> None:
        self._earlier_cache = self.cache
        channel, self._channel = self._channel, None
        child, self._child = self._child, None
        if channel is not None:
            channel.close("the broker has ended it")
        if child is not None and not await asyncio.shield(run_blocking(child.close, END_S)):
            logger.warning("the process %d for the remote_dir has not ended yet", child.pid)


def _spawn(line: str) -> Child:
    return spawn_child(COMMAND, line, serves=True)


def _close_late(starting: "asyncio.Future[Child]") -> None:
    """The caller was cancelled while the process was starting: end it."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close(0)
