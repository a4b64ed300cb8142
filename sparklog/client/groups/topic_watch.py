"""The watch over the topics of a subscription: new topics, and new partitions.

Owns: when metadata is refreshed for a subscription.  Must not know the group.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import ClusterView
from sparklog.client.deadline import Deadline
from sparklog.errors import ClosedError, SparklogError

logger = logging.getLogger(__name__)

#: Time until the next look while a topic of the subscription does not exist, in seconds.
MISSING_TOPIC_PAUSE_S: Final = 1.0


class TopicWatch:
    """Refreshes metadata every ``max_age_s`` seconds and passes it to ``on_metadata``."""

    def __init__(
        self,
        cluster: ClusterClient,
        max_age_s: float,
        on_metadata: Callable[[ClusterView], None],
    ) -> None:
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._on_metadata = on_metadata
        self._task: asyncio.Task[None] | None = None

    def start(self, topics: Sequence[str] | None) -> None:
        """Watch these topics (None: all), from now on."""
        self.stop()
        self._task = asyncio.ensure_future(self._run(topics))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Stop, and wait until the look under way has ended."""
        task = self._task
        self.stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, topics: Sequence[str] | None) -> None:
        while True:
            pause_s = self._max_age_s
            try:
                view = await self._cluster.refresh(topics, Deadline(max(self._max_age_s, 1.0)))
            except ClosedError:
                return
            except SparklogError as error:
                logger.warning("the metadata of the subscription was not refreshed: %s", error)
                pause_s = min(pause_s, MISSING_TOPIC_PAUSE_S)
            else:
                if topics is not None and not view.topics.keys() >= set(topics):
                    pause_s = min(pause_s, MISSING_TOPIC_PAUSE_S)
                self._on_metadata(view)
            await asyncio.sleep(max(pause_s, 0.1))
