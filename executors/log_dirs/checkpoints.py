"""The checkpoints of a broker's logs: recovery points and log starts, per log directory.

Owns: the order of the writes.  Must not know when a write is due.
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
    """The checkpoints of all log directories.

    ``logs_in`` returns the open logs of a log directory.  ``suspect`` is called with a log
    directory whose checkpoint cannot be written.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        logs_in: Callable[[BrokerDir], Iterable[Log]],
        suspect: Callable[[BrokerDir], None],
    ) -> None:
        self._log_dirs = log_dirs
        self._logs_in = logs_in
        self._suspect = suspect
        self._writing = asyncio.Lock()
        #: The offsets on the disk, for log directories that were written since the start.
        self._written: dict[BrokerDir, _Offsets] = {}
        #: The log directories where a write is running or has failed.
        self._unsure: set[BrokerDir] = set()

    def allow(self, log: Log) -> bool:
        """Whether the checkpoint on the disk allows the log to be truncated as announced: neither
        its recovery point nor its log start is above that of the log."""
        tp = log.topic_partition
        log_dir = self._log_dirs.find(tp)
        if log_dir is None or log_dir in self._unsure:
            return False
        points, starts = self._written.get(log_dir, (log_dir.recovery_points, log_dir.log_starts))
        return points.get(tp, 0) <= log.recovery_point and starts.get(tp, 0) <= log.log_start_offset

    async def note(self, opened: Iterable[TopicPartition]) -> None:
        """Write newly opened logs into the checkpoint before they take records.

        If the directory of a partition were lost later, the next start could not tell the partition
        from a new one otherwise.
        """
        if any(self._log_dirs.held(tp) is None for tp in opened):
            try:
                await self.write()
            except StorageError as error:
                logger.error("no checkpoint names the logs that were just made: %s", error)

    async def write(
        self,
        log_starts: Mapping[TopicPartition, int] = NO_LOG_STARTS,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the checkpoints of all log directories; entries of closed replicas stay.

        ``log_starts`` are new log starts, which are written before the logs take them.  ``then``
        makes the logs take them, before another write begins.  Raises StorageError when a log
        directory fails; the other log directories are written all the same.
        """
        failure: StorageError | None = None
        async with self._writing:  # an older state must not overwrite a newer one
            for log_dir in self._log_dirs:
                points, starts = dict(log_dir.recovery_points), dict(log_dir.log_starts)
                for log in self._logs_in(log_dir):
                    tp = log.topic_partition
                    points[tp] = log.recovery_point
                    starts[tp] = max(log.log_start_offset, log_starts.get(tp, 0))
                self._unsure.add(log_dir)
                try:
                    await run_blocking(log_dir.write_checkpoints, points, starts)
                except StorageError as error:
                    failure = error
                    self._suspect(log_dir)
                else:
                    self._written[log_dir] = points, starts
                    self._unsure.discard(log_dir)
            if failure is not None:
                raise failure
            then()
