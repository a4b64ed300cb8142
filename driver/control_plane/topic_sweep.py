"""The end of deleted topics in the remote_dir.

Owns: when the store is looked through, and which topics it is told of.  Must not know what lies
there, or for how long a topic must be unknown before its objects go (``remote_log.sweep``).

The control plane does this, not a broker: a broker's image may be old, and a topic that is newer
than it would seem deleted.  The topics are taken from the image before the journal confirms that no
other controller had taken over, so a topic that is missing among them does not exist any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.storage_backends.blocking import run_blocking

if TYPE_CHECKING:
    from sparklog.remote_log.service import RemoteLogService

#: Seconds between two looks, and before the first one.
SWEEP_EVERY_S: Final = 3600.0
#: For how long a topic must have been unknown.  A reader's plan may name its objects for a while.
UNKNOWN_MS: Final = 24 * 3_600_000

logger = logging.getLogger(__name__)


class TopicSweep:
    """Looks through one store.

    Args:
        open_remote_logs: opens the store; raises StorageError.
        topic_ids: those of all topics, in the newest image.
        confirm_leadership: returns when no other controller had taken over at the time of the
            call; raises KafkaError.
        wall_ms: the time.
    """

    def __init__(
        self,
        open_remote_logs: "Callable[[], RemoteLogService]",
        topic_ids: Callable[[], Set[UUID]],
        confirm_leadership: Callable[[], Awaitable[None]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._open = open_remote_logs
        self._topic_ids = topic_ids
        self._confirm_leadership = confirm_leadership
        self._wall_ms = wall_ms
        self.topics_deleted = 0

    async def run(self) -> None:
        """Sweep every hour until cancelled; a failure only delays the work."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.sweep()
            except SparklogError as error:
                logger.warning("deleted topics stay in the remote_dir for now: %s", error)
            except Exception:
                logger.exception("deleted topics stay in the remote_dir for now")

    async def sweep(self) -> None:
        """Sweep once.  Raises KafkaError, StorageError."""
        known = frozenset(self._topic_ids())
        await self._confirm_leadership()
        swept = await run_blocking(
            lambda: self._open().sweep_topics(known, self._wall_ms(), UNKNOWN_MS)
        )
        self.topics_deleted += swept.deleted
        if swept.marked:
            logger.warning(
                "topics in the remote_dir that are not known any more: %d; if they were not "
                "deleted, but the journal is an old copy, keep them within %d hours "
                "(docs/tiering.md)",
                swept.marked,
                UNKNOWN_MS // 3_600_000,
            )
        if swept.deleted:
            logger.info(
                "%d deleted topics have left the remote_dir, with %d objects",
                swept.deleted,
                swept.objects,
            )
