"""The checkpoints of a broker's logs: recovery points and log starts, per log directory.

Owns: the order of the writes.  Must not know when a write is due.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from sparklog.errors import StorageError
from sparklog.executors.log import Log
from sparklog.executors.log_dirs.broker_dir import BrokerDir, LogOffsets
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

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
        self._written: dict[BrokerDir, LogOffsets] = {}
        #: The log directories where a write is running or has failed.
        self._unsure: set[BrokerDir] = set()

    def allow(self, log: Log) -> bool:
        """Whether the checkpoint on the disk allows the log to be truncated as announced: neither
        its recovery point nor a log start is above that of the log, and no later log start is to be
        noted."""
        if log.log_start_to_note > log.log_start_offset:
            return False
        tp = log.topic_partition
        log_dir = self._log_dirs.find(tp)
        if log_dir is None or log_dir in self._unsure:
            return False
        on_disk = self._written.get(log_dir, log_dir.noted)
        return (
            on_disk.recovery_points.get(tp, 0) <= log.recovery_point
            and on_disk.log_starts.get(tp, 0) <= log.log_start_offset
            and on_disk.local_log_starts.get(tp, 0) <= log.local_log_start_offset
        )

    def log_start_of(self, tp: TopicPartition) -> int:
        """The log start that is certainly on the disk; 0 if none is."""
        log_dir = self._log_dirs.find(tp)
        if log_dir is None or log_dir in self._unsure:
            return 0
        return self._written.get(log_dir, log_dir.noted).log_starts.get(tp, 0)

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
        *,
        local_log_starts: Mapping[TopicPartition, int] = NO_LOG_STARTS,
    ) -> None:
        """Write the checkpoints of all log directories; entries of closed replicas stay.

        ``log_starts`` and ``local_log_starts`` are new ones, which are written before the logs take
        them.  A local log start that the log cannot take any more is left out.  ``then`` makes the
        logs take them, before another write begins.  Raises StorageError when a log directory
        fails; the other log directories are written all the same.
        """
        failure: StorageError | None = None
        async with self._writing:  # an older state must not overwrite a newer one
            for log_dir in self._log_dirs:
                offsets = self._offsets_in(log_dir, log_starts, local_log_starts)
                self._unsure.add(log_dir)
                try:
                    await run_blocking(log_dir.write_checkpoints, offsets)
                except StorageError as error:
                    failure = error
                    self._suspect(log_dir)
                else:
                    self._written[log_dir] = offsets
                    self._unsure.discard(log_dir)
            if failure is not None:
                raise failure
            then()

    def _offsets_in(
        self,
        log_dir: BrokerDir,
        log_starts: Mapping[TopicPartition, int],
        local_log_starts: Mapping[TopicPartition, int],
    ) -> LogOffsets:
        points, starts = dict(log_dir.recovery_points), dict(log_dir.log_starts)
        local_starts = dict(log_dir.local_log_starts)
        for log in self._logs_in(log_dir):
            tp = log.topic_partition
            points[tp] = log.recovery_point
            starts[tp] = max(log.log_start_to_note, log_starts.get(tp, 0))
            planned = local_log_starts.get(tp, 0)
            if not log.can_delete_local(planned):
                planned = 0  # the log has been truncated since
            local_start = max(log.local_log_start_offset, planned)
            if local_start > starts[tp]:
                local_starts[tp] = local_start
            else:
                local_starts.pop(tp, None)
        return LogOffsets(recovery_points=points, log_starts=starts, local_log_starts=local_starts)
