"""The end of deleted topics in the remote_dir.

Owns: when the store is looked through, and which topics it is told of.  Must not know what lies
there, or how the journal has them.

A topic's objects are deleted because the journal says that the topic was deleted.  A topic in the
store that the journal does not know stays, and an operator is told: the journal may be an old copy.
The control plane does this, not a broker, whose image may be old.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sparklog.driver.control_plane.controller import RemoteDeletesFinished
from sparklog.errors import SparklogError, StorageError
from sparklog.metadata import ClusterImage
from sparklog.plurals import listed
from sparklog.storage_backends.blocking import run_blocking

if TYPE_CHECKING:
    from sparklog.remote_log.service import RemoteLogService

#: Seconds before the first look, and between two.
FIRST_SWEEP_S: Final = 600.0
SWEEP_EVERY_S: Final = 3600.0
#: For how long a topic must have been deleted.  A reader's plan may name its objects for a while.
DELETED_MS: Final = 24 * 3_600_000
#: About as many objects are deleted in one go; the end of the control plane waits for it.
OBJECTS_AT_ONCE: Final = 5_000
#: Unknown topics that a warning names; it counts the others.
NAMED_MAX: Final = 20

logger = logging.getLogger(__name__)


class TopicSweep:
    """Looks through one store.

    Args:
        open_remote_logs: opens the store; raises StorageError.
        image: the newest committed image.
        confirm_leadership: returns when no other controller had taken over at the time of the
            call; raises KafkaError.
        decide: lets the controller decide on an event; what it returns may be awaited.
        wall_ms: the time.
    """

    def __init__(
        self,
        open_remote_logs: "Callable[[], RemoteLogService]",
        image: Callable[[], ClusterImage],
        confirm_leadership: Callable[[], Awaitable[None]],
        decide: Callable[[RemoteDeletesFinished], object],
        wall_ms: Callable[[], int],
    ) -> None:
        self._open = open_remote_logs
        self._image = image
        self._confirm_leadership = confirm_leadership
        self._decide = decide
        self._wall_ms = wall_ms
        self._unknown: list[UUID] = []
        self._deleted = 0

    def status(self) -> dict[str, int]:
        """Deleted topics that have left the store, and topics there that the journal lacks."""
        return {"remote_topics_deleted": self._deleted, "remote_topics_unknown": len(self._unknown)}

    async def run(self) -> None:
        """Sweep every hour until cancelled; a failure only delays the work."""
        await asyncio.sleep(FIRST_SWEEP_S)
        while True:
            try:
                await self.sweep()
            except SparklogError as error:
                logger.warning("deleted topics stay in the remote_dir for now: %s", error)
            except Exception:
                logger.exception("deleted topics stay in the remote_dir for now")
            await asyncio.sleep(SWEEP_EVERY_S)

    async def sweep(self) -> None:
        """Sweep once.  Raises KafkaError, StorageError."""
        await self._confirm_leadership()
        store = await run_blocking(self._open_own, self._image().cluster_id)
        gone: set[UUID] = set()
        objects = 0
        for topic_id, deleted_ms in list(self._image().remote_deletes.items()):
            if deleted_ms > self._wall_ms() - DELETED_MS:
                continue
            try:
                objects += await self._sweep_topic(store, topic_id, gone)
            except StorageError as error:
                logger.warning(
                    "the deleted topic %s stays in the remote_dir for now: %s", topic_id, error
                )
        if gone:
            decided = self._decide(RemoteDeletesFinished(frozenset(gone)))
            if inspect.isawaitable(decided):
                await decided
            self._deleted += len(gone)
            logger.info(
                "%d deleted topics have left the remote_dir, with %d objects", len(gone), objects
            )
        await self._look_for_unknown(store)

    def _open_own(self, cluster_id: str) -> "RemoteLogService":
        store = self._open()
        if (owner := store.owner.name(cluster_id)) != cluster_id:
            raise StorageError(f"it belongs to cluster {owner} now, not to {cluster_id}")
        return store

    async def _sweep_topic(self, store: "RemoteLogService", topic_id: UUID, gone: set[UUID]) -> int:
        """Sweep one topic; return how many objects were deleted."""
        objects = 0
        while topic_id in self._image().remote_deletes:
            # A journal that was repaired meanwhile may have the topic again.
            await self._confirm_leadership()
            swept = await run_blocking(store.sweep_topic, topic_id, OBJECTS_AT_ONCE)
            objects += swept.objects
            if swept.is_finished:
                gone.add(topic_id)
                break
        return objects

    async def _look_for_unknown(self, store: "RemoteLogService") -> None:
        """Warn of topics that the journal does not know, when they are first seen."""
        in_store = await run_blocking(store.unknown_topics, ())
        image = self._image()  # after the look: the topics may be new
        known = image.topics_by_id.keys() | image.remote_deletes.keys()
        before, self._unknown = self._unknown, [each for each in in_store if each not in known]
        if not set(self._unknown) <= set(before):
            logger.warning(
                "the remote_dir has topics that the journal does not know; they are kept "
                "(docs/tiering.md): %s",
                listed(self._unknown, NAMED_MAX),
            )
