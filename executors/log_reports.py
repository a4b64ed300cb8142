"""What a broker tells the control plane about its logs, for elections.

Owns: which logs do not work; how far those of partitions without a leader reach, and when that is
told again.  Must not know who is elected, or why.

Log ends are told whenever there is something new to tell, and repeated now and then, because the
control plane keeps them in memory only.  Logs that do not work are part of every heartbeat.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparklog.errors import ConnectError, KafkaError
from sparklog.executors.partitions import PartitionTable
from sparklog.types import NO_NODE
from sparklog.wire.private import LogEnd, OfflineReplica

REPEAT_S = 10.0
RETRY_S = 0.2

logger = logging.getLogger(__name__)


class LogEndReports:
    """``tell`` raises ConnectError or KafkaError when the control plane did not take it."""

    def __init__(
        self, table: PartitionTable, tell: Callable[[tuple[LogEnd, ...]], Awaitable[None]]
    ) -> None:
        self._table = table
        self._tell = tell
        self._changed = asyncio.Event()
        self._told: tuple[object, ...] | None = None

    def look(self) -> None:
        """The image has changed, or this broker has registered anew."""
        self._changed.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            pause_s = await self._report()
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                self._told = None
            self._changed.clear()

    async def _report(self) -> float | None:
        """How long to wait for news; None when there is nothing to repeat."""
        ends, image = log_ends(self._table), self._table.image
        news = (image.controller_epoch, image.broker(self._table.node_id), ends)
        if not ends:
            self._told = None
            return None
        if news != self._told:
            try:
                await self._tell(ends)
            except (ConnectError, KafkaError) as error:
                logger.info("log ends of %d partitions not reported: %s", len(ends), error)
                return RETRY_S
            self._told = news
        return REPEAT_S


def log_ends(table: PartitionTable) -> tuple[LogEnd, ...]:
    """Of partitions whose role says that nobody leads: nothing is appended to them any more."""
    ends: list[LogEnd] = []
    for tp in table.image.partitions_led_by(NO_NODE):
        partition = table.get(tp)
        if partition is None or partition.log.offline is not None:
            continue
        if partition.state is not None and partition.state.offline:
            ends.append(
                LogEnd(
                    topic_id=partition.topic_id,
                    partition=tp.partition,
                    leader_epoch=partition.log.leader_epochs.latest_epoch,
                    log_end_offset=partition.log.log_end_offset,
                )
            )
    return tuple(ends)


def offline_replicas(table: PartitionTable) -> tuple[OfflineReplica, ...]:
    """Replicas whose disk failed or whose log is damaged."""
    topics = ((table.image.topic(tp.topic), tp.partition) for tp in table.offline)
    return tuple(
        OfflineReplica(topic_id=topic.topic_id, partition=number)
        for topic, number in topics
        if topic is not None
    )
