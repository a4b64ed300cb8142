"""A coordinator with one partition of ``__transaction_state``, two led partitions, and cuts.

Owns: the logs of the led partitions and which marker reaches them when.  Must not know what a test
expects.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from sparklog.client.data_client import DataClient
from sparklog.driver.transaction_coordinator.cut_taker import CutTaker
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender, OnWritten
from sparklog.driver.transaction_coordinator.partition_coordinator import (
    PartitionCoordinator,
    PartitionTools,
)
from sparklog.driver.transaction_coordinator.transaction_log import TransactionLog
from sparklog.driver.transactions import (
    ConsistentCuts,
    Now,
    ProducerIdentity,
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from sparklog.errors import KafkaError
from sparklog.runtime_environment import clock_s
from sparklog.types import TopicPartition
from tests.support.waiting import until
from tests.unit.driver.transaction_coordinator.coordinator_clients import CoordinatorClients
from tests.unit.driver.transaction_coordinator.fake_log import TP, FakeLog

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BOTH = frozenset({A0, A1})


class Leaders:
    """The leaders of the led partitions, as the coordinator's client sees them."""

    def __init__(self) -> None:
        #: The transactional ids of the records; None for a marker.
        self.logs: dict[TopicPartition, list[str | None]] = {A0: [], A1: []}
        self.open: dict[TopicPartition, dict[str, int]] = {A0: {}, A1: {}}
        #: Cleared: the leader of partition 1 does not answer.
        self.answers = asyncio.Event()
        self.answers.set()
        self.error: Exception | None = None
        self.asked = 0
        self.refreshed: list[list[str]] = []

    def append(self, tp: TopicPartition, name: str) -> None:
        self.open[tp].setdefault(name, len(self.logs[tp]))
        self.logs[tp].append(name)

    def mark(self, tp: TopicPartition, name: str) -> None:
        self.open[tp].pop(name, None)
        self.logs[tp].append(None)

    def last_stable_offset(self, tp: TopicPartition) -> int:
        return min(self.open[tp].values(), default=len(self.logs[tp]))

    # -- the client

    @property
    def cluster(self) -> "Leaders":
        return self

    async def refresh(self, topics: list[str], _deadline: object) -> None:
        self.refreshed.append(topics)

    async def end_offsets(
        self, partitions: Sequence[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        assert timeout_s > 0
        if self.error is not None:
            raise self.error
        found: dict[TopicPartition, int] = {}
        for tp in partitions:
            self.asked += 1
            if tp == A1:
                await self.answers.wait()
            found[tp] = self.last_stable_offset(tp)
        return found


class CutRig(CoordinatorClients):
    def __init__(self, fake: FakeLog) -> None:
        super().__init__()
        self.fake = fake
        self.leaders = Leaders()
        self.markers: list[tuple[WriteMarkers, OnWritten]] = []
        self.leadership: KafkaError | None = None
        self.partitions: list[PartitionCoordinator] = []
        self._producer_ids = iter(range(100, 10_000))
        cuts = ConsistentCuts()
        self.taker = CutTaker(
            cuts, lambda: self.partitions, cast(DataClient, self.leaders), _now, self._confirm
        )
        tools = PartitionTools(
            new_shard=lambda: TransactionShard(
                TransactionConfig(), lambda: next(self._producer_ids), cuts
            ),
            now=_now,
            markers=cast(MarkerSender, self),
            loads=asyncio.Semaphore(1),
            on_fenced=lambda _: None,
            on_event=self.taker.advance,
        )
        log = TransactionLog(
            TP,
            cast(DataClient, fake),
            controller_epoch=1,
            load_bytes=100,
            replaying=asyncio.Lock(),
            wall_ms=lambda: 0,
        )
        self.partition = PartitionCoordinator(log, tools)
        self._task: asyncio.Task[None] | None = None

    async def _confirm(self) -> None:
        if self.leadership is not None:
            raise self.leadership

    async def load(self) -> None:
        self.partitions.append(self.partition)
        self._task = asyncio.get_running_loop().create_task(self.partition.run())
        await until(lambda: self.partition.shard is not None)

    async def close(self) -> None:
        self.taker.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- producers

    async def begin(self, name: str, *partitions: TopicPartition) -> ProducerIdentity:
        """A transaction with one record in each of its partitions."""
        producer = await self.init(name)
        assert isinstance(producer, ProducerIdentity)
        await self.add(name, producer, *partitions)
        return producer

    async def add(self, name: str, producer: ProducerIdentity, *partitions: TopicPartition) -> None:
        await self.add_partitions(name, producer, frozenset(partitions))
        for tp in partitions:
            self.leaders.append(tp, name)

    # -- markers

    def write(self, write: WriteMarkers, on_written: OnWritten) -> None:
        """The sender's part: the markers wait until the test delivers them."""
        self.markers.append((write, on_written))

    def forget(self, on_written: OnWritten) -> None:
        self.markers = [each for each in self.markers if each[1] != on_written]

    def deliver(self, *partitions: TopicPartition) -> None:
        """These partitions get all their markers."""
        for write, on_written in list(self.markers):
            reached = write.partitions & frozenset(partitions)
            for tp in reached:
                self.leaders.mark(tp, write.transactional_id)
            if reached:
                on_written(write.transactional_id, write.producer, reached)

    # -- cuts

    def take(self, max_wait_ms: int = 10_000) -> "asyncio.Task[dict[TopicPartition, int]]":
        return asyncio.ensure_future(self.taker.take(BOTH, max_wait_ms))


def _now() -> Now:
    ms = int(clock_s() * 1000)
    return Now(ms, 1_000_000 + ms)
