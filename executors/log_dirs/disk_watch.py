"""Finding out whether a disk still works, after something on it did not.

Owns: at most one probe per folder at a time, and what counts as a failed disk.  Must not know what
lies on it.

A disk that is full or read-only refuses writes and still serves what it holds, until it is mended;
one that fails otherwise has failed for as long as the broker runs.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from sparklog.errors import StorageError
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.storage_backends.blocking import run_blocking

#: Troubles that go away without another disk.
_PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EMFILE, errno.ENFILE}
)


class DiskWatch:
    """``on_failure`` is awaited once for each folder whose disk has failed.  ``close`` it."""

    def __init__(self, on_failure: Callable[[BrokerDir, StorageError], Awaitable[None]]) -> None:
        self._on_failure = on_failure
        self._probes: dict[int, asyncio.Task[None]] = {}

    def suspect(self, folder: BrokerDir) -> None:
        """Something that needs the disk has failed; look whether it was the disk."""
        if id(folder) not in self._probes:
            task = asyncio.get_running_loop().create_task(self._probe(folder))
            self._probes[id(folder)] = task

    async def close(self) -> None:
        """No probe is under way afterwards."""
        while self._probes:
            await asyncio.wait(self._probes.values())

    async def _probe(self, folder: BrokerDir) -> None:
        try:
            await run_blocking(folder.probe)
        except StorageError as error:
            if error.code not in _PASSING:
                await self._on_failure(folder, error)
        finally:
            del self._probes[id(folder)]
