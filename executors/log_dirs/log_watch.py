"""Periodic checks that the files of a broker's logs still exist.

Owns: which logs a round checks, and that the check runs in a worker thread.  Must not know what
happens to a log whose files are gone.

Every round checks the logs with appends since the last round, and a few of the other logs in turn.
So a round costs the same however many idle partitions there are.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from sparklog.errors import LostLogError, StorageError
from sparklog.executors.log import FileCache, Log, Loss, PresenceCheck
from sparklog.executors.log_dirs.partition_dirs import parse_partition_dir
from sparklog.executors.partition import Partition
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition

#: Logs with appends that one round checks; more wait for the next round.
APPENDED_MAX = 256
#: Other logs that one round checks.
IDLE_MAX = 32

logger = logging.getLogger(__name__)


class LogWatch:
    """The checks of one broker.

    ``find`` returns an open partition by name, ``every`` all of them; ``files`` knows the logs with
    appends.
    ``on_loss`` is called for a log that has lost files, ``on_disk_error`` for a log whose disk
    failed during the check.
    """

    def __init__(
        self,
        find: Callable[[TopicPartition], Partition | None],
        every: Callable[[], Iterator[TopicPartition]],
        files: FileCache,
        *,
        on_loss: Callable[[TopicPartition, LostLogError], None],
        on_disk_error: Callable[[TopicPartition], None],
    ) -> None:
        self._find = find
        self._every = every
        self._appended = files.appended
        self._on_loss = on_loss
        self._on_disk_error = on_disk_error
        self._idle: Iterator[TopicPartition] = iter(())
        self._suspected: dict[TopicPartition, asyncio.Task[None]] = {}

    async def check_round(self) -> None:
        """Check the logs with appends since the last round, and a few of the others."""
        await self._check([*self._take_appended(), *self._take_idle()])

    def suspect(self, topic_partition: TopicPartition) -> None:
        """Check a log now, after a request on it has failed."""
        if topic_partition not in self._suspected:
            task = asyncio.get_running_loop().create_task(self._check_suspected(topic_partition))
            self._suspected[topic_partition] = task

    async def close(self) -> None:
        """Wait for the checks that ``suspect`` started."""
        while self._suspected:
            await asyncio.wait(self._suspected.values())

    async def _check_suspected(self, tp: TopicPartition) -> None:
        try:
            await self._check([tp])
        finally:
            del self._suspected[tp]

    def _take_appended(self) -> Iterator[TopicPartition]:
        for path in tuple(self._appended)[:APPENDED_MAX]:
            del self._appended[path]
            tp = parse_partition_dir(path.rpartition("/")[2])
            if tp is not None:
                yield tp

    def _take_idle(self) -> list[TopicPartition]:
        taken: list[TopicPartition] = []
        while len(taken) < IDLE_MAX:
            tp = next(self._idle, None)
            if tp is None:
                self._idle = self._every()
                break
            taken.append(tp)
        return taken

    async def _check(self, wanted: Sequence[TopicPartition]) -> None:
        asked: list[tuple[TopicPartition, Log, PresenceCheck]] = []
        for tp in dict.fromkeys(wanted):
            log = self._log(tp)
            if log is not None:
                asked.append((tp, log, log.presence.check()))
        if not asked:
            return
        found = await run_blocking(_run_all, [check for _, _, check in asked])
        for (tp, log, check), answer in zip(asked, found, strict=True):
            if answer is None or self._log(tp) is not log:
                continue
            if isinstance(answer, StorageError):
                logger.debug("the files of %s could not be checked: %s", tp, answer)
                self._on_disk_error(tp)
            elif log.presence.is_lost(check, answer):
                self._on_loss(tp, answer.error)

    def _log(self, tp: TopicPartition) -> Log | None:
        """The log of an open partition, failed or not; None during a truncation."""
        partition = self._find(tp)
        return None if partition is None or partition.log.truncating else partition.log


def _run_all(checks: Sequence[PresenceCheck]) -> list[Loss | StorageError | None]:
    found: list[Loss | StorageError | None] = []
    for check in checks:
        try:
            found.append(check.run())
        except StorageError as error:
            found.append(error)
    return found
