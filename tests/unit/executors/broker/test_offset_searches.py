"""Searches for offsets by timestamp: how many run at once, and for whom."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.log.steps import LongPart, Steps
from sparklog.executors.replica_manager import offset_searches
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.executors.replica_manager.offset_searches import (
    BUCKET_SEARCHES_AT_ONCE,
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

    async def finish_one(self, index: int = 0) -> None:
        self.running.pop(index).set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)


class BucketSearch:
    """A search in the bucket, whose calls end when they are told to."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[None]] = []

    async def __call__(self) -> None:
        self.running.append(asyncio.get_running_loop().create_future())
        await self.running[-1]


def search(name: str, is_long: bool) -> Steps[OffsetTimestamp | None]:
    yield LongPart(lambda: name) if is_long else lambda: name
    return OffsetTimestamp(offset=1)


def connection() -> Any:
    return SimpleNamespace(state={})


def start(
    searches: OffsetSearches, who: Any, name: str, partition: int, *, is_long: bool = False
) -> "asyncio.Task[OffsetTimestamp | None]":
    tp = TopicPartition("t", partition)
    return asyncio.ensure_future(searches.run(who, tp, search(name, is_long)))


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


def test_a_search_waits_for_one_long_part_at_most() -> None:
    async def main() -> None:
        worker = Worker()
        with replaced_runner(worker):
            searches = OffsetSearches(LogWorkers())
            tasks = [start(searches, connection(), f"long {n}", n, is_long=True) for n in range(5)]
            await asyncio.sleep(0)
            tasks += [start(searches, connection(), f"short {n}", 9 + n) for n in range(3)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert worker.began == ["long 0", "short 0"]
            for _ in range(3):
                await worker.finish_one(-1)  # the long part ends last
            assert worker.began == ["long 0", "short 0", "short 1", "short 2"]
            while worker.running:
                await worker.finish_one()
            assert worker.began[4:] == [f"long {n}" for n in range(1, 5)]
            assert [await task for task in tasks] == [OffsetTimestamp(offset=1)] * 8

    asyncio.run(main())


def test_few_searches_are_in_the_bucket_at_once() -> None:
    async def main() -> None:
        searches = OffsetSearches(LogWorkers())
        find = BucketSearch()
        running = find.running

        ask = [searches.run_remote(connection(), find, 60) for _ in range(10)]
        tasks = [asyncio.ensure_future(each) for each in ask]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(running) == BUCKET_SEARCHES_AT_ONCE
        for number in range(10):
            running[number].set_result(None)
            for _ in range(10):
                await asyncio.sleep(0)
        assert [await task for task in tasks] == [None] * 10

    asyncio.run(main())


def test_a_search_that_nobody_waits_for_keeps_its_place_until_it_ends() -> None:
    """The process that searches goes on, and its threads are those that read for fetches."""

    async def main() -> None:
        searches = OffsetSearches(LogWorkers())
        find = BucketSearch()
        running = find.running

        async def ask(timeout_s: float) -> ErrorCode:
            with pytest.raises(KafkaError) as caught:
                await searches.run_remote(connection(), find, timeout_s)
            return caught.value.code

        asked = [ask(0.01) for _ in range(10)]
        assert await asyncio.gather(*asked) == [ErrorCode.REQUEST_TIMED_OUT] * 10
        assert len(running) == BUCKET_SEARCHES_AT_ONCE
        running[0].set_exception(StorageError("gone"))
        waiting = asyncio.ensure_future(searches.run_remote(connection(), find, 60))
        while len(running) == BUCKET_SEARCHES_AT_ONCE:
            await asyncio.sleep(0)
        for each in running[1:]:
            each.set_result(None)
        assert await waiting is None

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
