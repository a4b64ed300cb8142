"""What a broker writes down of its logs: recovery points and log starts, per folder.

Owns: the order of the writes.  Must not know when they are due.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from sparklog.errors import StorageError
from sparklog.executors.log import Log
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

_Offsets: TypeAlias = tuple[dict[TopicPartition, int], dict[TopicPartition, int]]

NO_LOG_STARTS: Mapping[TopicPartition, int] = MappingProxyType({})


class LogCheckpoints:
    """``logs_in`` gives the open logs of a folder; ``suspect`` hears of one that refuses writes."""

    def __init__(
        self,
        folders: LogDirs,
        logs_in: Callable[[BrokerDir], Iterable[Log]],
        suspect: Callable[[BrokerDir], None],
    ) -> None:
        self._folders = folders
        self._logs_in = logs_in
        self._suspect = suspect
        self._writing = asyncio.Lock()
        #: What is on the disk, where it was written since the start.
        self._written: dict[BrokerDir, _Offsets] = {}
        #: Where a write is under way, or has failed.
        self._unsure: set[BrokerDir] = set()

    def allow(self, log: Log) -> bool:
        """Whether a log may end, and start, where it says that it is sure to, as to the disk."""
        tp = log.topic_partition
        folder = self._folders.find(tp)
        if folder is None or folder in self._unsure:
            return False
        points, starts = self._written.get(folder, (folder.recovery_points, folder.log_starts))
        return points.get(tp, 0) <= log.recovery_point and starts.get(tp, 0) <= log.log_start_offset

    async def note(self, opened: Iterable[TopicPartition]) -> None:
        """Logs were opened: the checkpoint on the disk names them before they take records.

        Were the folder of one lost afterwards, the next start could not tell it from a new one.
        """
        if any(self._folders.held(tp) is None for tp in opened):
            try:
                await self.write()
            except StorageError as error:
                logger.error("no checkpoint names the logs that were just made: %s", error)

    async def write(
        self,
        log_starts: Mapping[TopicPartition, int] = NO_LOG_STARTS,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Write all; what is known of replicas that are not open stays as it was.

        ``log_starts`` are written before they are true; ``then`` makes them so, before anything
        else is written.  Raises StorageError when that fails in one folder; the others have theirs.
        """
        failure: StorageError | None = None
        async with self._writing:  # an older state must not overwrite a newer one
            for folder in self._folders:
                points, starts = dict(folder.recovery_points), dict(folder.log_starts)
                for log in self._logs_in(folder):
                    tp = log.topic_partition
                    points[tp] = log.recovery_point
                    starts[tp] = max(log.log_start_offset, log_starts.get(tp, 0))
                self._unsure.add(folder)
                try:
                    await run_blocking(folder.write_checkpoints, points, starts)
                except StorageError as error:
                    failure = error
                    self._suspect(folder)
                else:
                    self._written[folder] = points, starts
                    self._unsure.discard(folder)
            if failure is not None:
                raise failure
            then()
