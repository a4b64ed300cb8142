"""Reports of log ends to the control plane, for the election of leaders.

Owns: the log ends of partitions without a leader, and when a log end is reported again.
Must not know which replica is elected, or why.

Log ends are reported when they are new, and repeated now and then, because the control plane keeps
them in memory only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sparklog.errors import ConnectError, KafkaError
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.types import NO_NODE
from sparklog.wire.protocol.private import LogEnd

REPEAT_S = 10.0
RETRY_S = 0.2

logger = logging.getLogger(__name__)


class LogEndReports:
    """``send`` raises ConnectError or KafkaError when the control plane did not take the report."""

    def __init__(
        self, replica_manager: ReplicaManager, send: Callable[[tuple[LogEnd, ...]], Awaitable[None]]
    ) -> None:
        self._replica_manager = replica_manager
        self._send = send
        self._changed = asyncio.Event()
        #: The log ends that the controller has from this registration of the broker.
        self._reported: set[LogEnd] = set()
        self._reported_as: object = None

    def image_changed(self) -> None:
        """Report again, because the image has changed or this broker has registered anew."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        loop = asyncio.get_running_loop()
        repeat_at = loop.time() + REPEAT_S
        while True:
            if loop.time() >= repeat_at:
                self._reported.clear()
                repeat_at = loop.time() + REPEAT_S
            done = await self._report()
            pause_s: float | None = RETRY_S
            if done:
                pause_s = max(repeat_at - loop.time(), 0) if self._reported else None
            # Not wait_for, which takes no notice of a cancellation when the event is set as well.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            self._changed.clear()

    async def _report(self) -> bool:
        """Report the log ends that are new.  Return whether nothing is left to report."""
        ends, image = log_ends(self._replica_manager), self._replica_manager.image
        reported_as = image.controller_epoch, image.broker(self._replica_manager.node_id)
        if reported_as != self._reported_as:
            self._reported, self._reported_as = set(), reported_as
        self._reported &= ends
        news = ends - self._reported
        if not news:
            return True
        try:
            await self._send(tuple(sorted(news, key=_by_partition)))
        except (ConnectError, KafkaError) as error:
            logger.info("log ends of %d partitions not reported: %s", len(news), error)
            return False
        self._reported |= news
        return True


def log_ends(replica_manager: ReplicaManager) -> set[LogEnd]:
    """The log ends of partitions whose role has no leader: their epoch appends nothing more."""
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
