"""What a broker tells the control plane about its logs, for elections.

Owns: which logs do not work; how far those of partitions without a leader reach, and when that is
told again.  Must not know who is elected, or why.

Log ends are told whenever there is something new to tell, and repeated now and then, because the
control plane keeps them in memory only.  Logs that do not work are part of every heartbeat.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparklog.errors import ConnectError, KafkaError
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.types import NO_NODE
from sparklog.wire.protocol.private import LogEnd, OfflineReplica

REPEAT_S = 10.0
RETRY_S = 0.2

logger = logging.getLogger(__name__)


class LogEndReports:
    """``tell`` raises ConnectError or KafkaError when the control plane did not take it."""

    def __init__(
        self, replica_manager: ReplicaManager, tell: Callable[[tuple[LogEnd, ...]], Awaitable[None]]
    ) -> None:
        self._replica_manager = replica_manager
        self._tell = tell
        self._changed = asyncio.Event()
        #: What this controller knows of this registration.
        self._told: set[LogEnd] = set()
        self._told_as: object = None

    def look(self) -> None:
        """The image has changed, or this broker has registered anew."""
        self._changed.set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        repeat_at = loop.time() + REPEAT_S
        while True:
            if loop.time() >= repeat_at:
                self._told.clear()
                repeat_at = loop.time() + REPEAT_S
            done = await self._report()
            pause_s: float | None = RETRY_S
            if done:
                pause_s = max(repeat_at - loop.time(), 0) if self._told else None
            # Not wait_for, which takes no notice of a cancellation when the event is set as well.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            self._changed.clear()

    async def _report(self) -> bool:
        """Tell what is new; whether there is nothing left to tell."""
        ends, image = log_ends(self._replica_manager), self._replica_manager.image
        told_as = image.controller_epoch, image.broker(self._replica_manager.node_id)
        if told_as != self._told_as:
            self._told, self._told_as = set(), told_as
        self._told &= ends
        news = ends - self._told
        if not news:
            return True
        try:
            await self._tell(tuple(sorted(news, key=_by_partition)))
        except (ConnectError, KafkaError) as error:
            logger.info("log ends of %d partitions not reported: %s", len(news), error)
            return False
        self._told |= news
        return True


def log_ends(replica_manager: ReplicaManager) -> set[LogEnd]:
    """Of partitions whose role says that nobody leads: nothing is appended to them any more in its
    epoch."""
    ends: set[LogEnd] = set()
    for tp in replica_manager.image.partitions_led_by(NO_NODE):
        partition = replica_manager.get(tp)
        if partition is None or partition.log.offline is not None:
            continue
        if partition.state is not None and partition.state.offline:
            end = LogEnd(
                topic_id=partition.topic_id,
                partition=tp.partition,
                current_leader_epoch=partition.leader_epoch,
                leader_epoch=partition.log.leader_epochs.latest_epoch,
                log_end_offset=partition.log.log_end_offset,
            )
            ends.add(end)
    return ends


def _by_partition(end: LogEnd) -> tuple[str, int]:
    return str(end.topic_id), end.partition


def offline_replicas(replica_manager: ReplicaManager) -> tuple[OfflineReplica, ...]:
    """Replicas whose disk failed or whose log is damaged."""
    topics = ((tp, replica_manager.image.topic(tp.topic)) for tp in replica_manager.offline)
    return tuple(
        OfflineReplica(
            topic_id=topic.topic_id, partition=tp.partition, lost=replica_manager.failed.is_lost(tp)
        )
        for tp, topic in topics
        if topic is not None
    )
