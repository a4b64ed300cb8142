"""Remote reads that wait for one of a few calls: their order, and what goes before reads ahead."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.executors.tiering import remote_fetches
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_fetches import AHEAD_CALLS_MAX, CALLS_MAX, RemoteFetches
from sparklog.remote_log.reading import RemoteRead
from sparklog.types import TopicPartition
from tests.unit.executors.tiering.test_remote_fetches import BATCHES, Bucket, Leader


class HeldBucket(Bucket):
    """Each call waits until it is let go.  ``held`` are the partitions and offsets of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[int, int], asyncio.Event] = {}

    async def call(self, method: str, *args: Any, **named: Any) -> list[RemoteRead]:
        key = args[0].partition, args[1].start
        event = self.held[key] = asyncio.Event()
        await event.wait()
        del self.held[key]
        return await super().call(method, *args, **named)


class Case:
    """Clients of many partitions, each of which fetches again when its records have come."""

    def __init__(self) -> None:
        self.bucket = HeldBucket()
        self.partitions: list[Any] = []
        self.arrived: list[int] = []
        self.closed: set[int] = set()
        self.fetches = RemoteFetches(
            self.bucket,
            lambda tp: self.arrived.append(tp.partition),
            TieringMetrics(),
            open_file=self.bucket.open_file,
            is_hosted=lambda each: each.topic_partition.partition not in self.closed,
        )

    def fetch(self, number: int, offset: int = 0) -> bool:
        """Whether the records are there."""
        while len(self.partitions) <= number:
            partition: Any = Leader(len(BATCHES))
            partition.topic_partition = TopicPartition("t", len(self.partitions))
            self.partitions.append(partition)
        found = self.fetches.read(self.partitions[number], offset, 1000, with_aborted=False)
        if found is not None:
            found.records.release()
        return found is not None

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def let_go(self, number: int, offset: int = 0) -> None:
        self.bucket.held[number, offset].set()
        await self.settle()


def run(test: Callable[[Case], Awaitable[None]]) -> None:
    async def within() -> None:
        case = Case()
        await test(case)
        await case.fetches.close()

    asyncio.run(asyncio.wait_for(within(), 30))


def test_fetches_that_find_no_free_call_get_the_next_ones_in_their_order() -> None:
    async def test(case: Case) -> None:
        for number in range(CALLS_MAX + 3):
            assert not case.fetch(number)
        await case.settle()
        assert list(case.bucket.held) == [(number, 0) for number in range(CALLS_MAX)]
        for ended in range(3):
            await case.let_go(ended)
            last = list(case.bucket.held)[-1]
            assert last == (CALLS_MAX + ended, 0), "not a read ahead of what has come"
            assert case.fetch(ended)
        for number in range(3, CALLS_MAX + 3):
            await case.let_go(number)
        assert case.arrived == list(range(CALLS_MAX + 3)), "all fetches are checked again"

    run(test)


def test_reads_ahead_leave_half_of_the_calls_to_fetches() -> None:
    async def test(case: Case) -> None:
        for number in range(CALLS_MAX):
            assert not case.fetch(number)
        await case.settle()
        for number in range(CALLS_MAX):
            await case.let_go(number)
            assert case.fetch(number)
        await case.settle()
        assert len(case.bucket.held) == AHEAD_CALLS_MAX
        assert {offset for _, offset in case.bucket.held} == {1}
        assert not case.fetch(CALLS_MAX)
        await case.settle()
        assert (CALLS_MAX, 0) in case.bucket.held, "a fetch that comes does not wait for them"

    run(test)


def test_what_nobody_may_ask_for_any_more_is_not_read() -> None:
    async def test(case: Case) -> None:
        for number in range(CALLS_MAX + 3):
            assert not case.fetch(number)
        case.partitions[CALLS_MAX].leader_epoch += 1
        case.closed.update((0, CALLS_MAX + 1))
        await case.settle()
        await case.let_go(0)
        assert (CALLS_MAX + 2, 0) in case.bucket.held
        assert not {(0, 1), (CALLS_MAX, 0), (CALLS_MAX + 1, 0)} & case.bucket.held.keys()

    run(test)


def test_few_reads_wait(monkeypatch: Any) -> None:
    monkeypatch.setattr(remote_fetches, "WAITING_MAX", 2)

    async def test(case: Case) -> None:
        for number in range(CALLS_MAX + 3):
            assert not case.fetch(number)
        await case.settle()
        for ended in range(3):
            await case.let_go(ended)
        assert (CALLS_MAX + 1, 0) in case.bucket.held
        assert (CALLS_MAX + 2, 0) not in case.bucket.held
        assert not case.fetch(CALLS_MAX + 2)
        await case.let_go(3)
        assert (CALLS_MAX + 2, 0) in case.bucket.held, "a later fetch asks again"

    run(test)
