"""Probes of a disk after an operation on it has failed.

Owns: at most one probe per log directory at a time, and the decision that a disk has failed.  Must
not know the files on the disk.

A disk that is full or read-only refuses writes, and reads go on until the disk is repaired.  After
any other error the disk counts as failed for as long as the broker runs.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from sparklog.errors import StorageError
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.storage_backends.blocking import run_blocking

#: Errors after which the same disk may work again.
_PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EMFILE, errno.ENFILE}
)


class DiskWatch:
    """Probes log directories; ``on_failure`` is awaited once for each failed directory."""

    def __init__(self, on_failure: Callable[[BrokerDir, StorageError], Awaitable[None]]) -> None:
        self._on_failure = on_failure
        self._probes: dict[int, asyncio.Task[None]] = {}

    def suspect(self, log_dir: BrokerDir) -> None:
        """Probe a log directory after a failed operation, unless a probe is running."""
        if id(log_dir) not in self._probes:
            task = asyncio.get_running_loop().create_task(self._probe(log_dir))
            self._probes[id(log_dir)] = task

    async def close(self) -> None:
        """Wait for the running probes."""
        while self._probes:
            await asyncio.wait(self._probes.values())

    async def _probe(self, log_dir: BrokerDir) -> None:
        try:
            await run_blocking(log_dir.probe)
        except StorageError as error:
            if error.code not in _PASSING:
                await self._on_failure(log_dir, error)
        finally:
            del self._probes[id(log_dir)]
