"""Searches for offsets by timestamp: how many run at once, and for whom."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.steps import Steps
from sparklog.executors.replica_manager import offset_searches
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.executors.replica_manager.offset_searches import (
    CONNECTION_SEARCHES,
    SEARCHES_AT_ONCE,
    OffsetSearches,
)
from sparklog.storage_backends.blocking import replaced_runner
from sparklog.types import OffsetTimestamp, TopicPartition


class Worker:
    """Blocking work that ends when it is told to."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[None]] = []
        self.began: list[str] = []

    async def __call__(self, work: Any) -> Any:
        self.began.append(work())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.append(done)
        await done
        return None

    async def finish_one(self) -> None:
        self.running.pop(0).set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)


def search(name: str) -> Steps[OffsetTimestamp | None]:
    yield lambda: name
    return OffsetTimestamp(offset=1)


def connection() -> Any:
    return SimpleNamespace(state={})


def start(
    searches: OffsetSearches, who: Any, name: str, partition: int
) -> "asyncio.Task[OffsetTimestamp | None]":
    tp = TopicPartition("t", partition)
    return asyncio.ensure_future(searches.run(who, tp, search(name)))


def test_a_flood_of_one_connection_does_not_delay_another() -> None:
    async def main() -> None:
        worker = Worker()
        with replaced_runner(worker):
            searches = OffsetSearches(LogWorkers())
            flooding, other = connection(), connection()
            tasks = [start(searches, flooding, "flood", n) for n in range(50)]
            await asyncio.sleep(0)
            tasks.append(start(searches, other, "other", 99))
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(worker.running) == SEARCHES_AT_ONCE
            for _ in range(CONNECTION_SEARCHES):
                await worker.finish_one()
            assert worker.began.index("other") <= CONNECTION_SEARCHES
            while worker.running:
                assert len(worker.running) <= SEARCHES_AT_ONCE
                await worker.finish_one()
            assert [await task for task in tasks] == [OffsetTimestamp(offset=1)] * 51

    asyncio.run(main())


def test_more_than_may_wait_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_searches, "SEARCHES_MAX", 3)

    async def main() -> None:
        worker = Worker()
        with replaced_runner(worker):
            searches = OffsetSearches(LogWorkers())
            tasks = [start(searches, connection(), "s", n) for n in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(KafkaError) as caught:
                await start(searches, connection(), "s", 3)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            while not all(task.done() for task in tasks):
                for _ in range(10):
                    await asyncio.sleep(0)
                if worker.running:
                    await worker.finish_one()
            await start_and_finish(searches, worker)

    asyncio.run(main())


async def start_and_finish(searches: OffsetSearches, worker: Worker) -> None:
    """There is room again."""
    task = start(searches, connection(), "s", 4)
    while not task.done():
        for _ in range(10):
            await asyncio.sleep(0)
        if worker.running:
            await worker.finish_one()
    assert await task == OffsetTimestamp(offset=1)
