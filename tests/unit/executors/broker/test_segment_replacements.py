"""Segments are replaced when no flush runs, and flushes that came meanwhile follow."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log import CleanedGroup
from sparklog.executors.partition import Partition
from sparklog.metadata.records import TopicDeleted
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from tests.support.waiting import until
from tests.unit.executors.broker.test_truncations import NOW, Follower, stored
from tests.unit.executors.log.cleaned_logs import clean
from tests.unit.executors.log.log_fixtures import read_all


def run(test: Callable[[Follower, CleanedGroup], Awaitable[None]]) -> None:
    async def within() -> None:
        follower = await Follower.start(MemoryBackend())
        follower.fill(flushed=True)
        log = follower[0].log
        log.roll(NOW)
        log.flush(NOW)
        group = clean(follower.backend, log.segments[:1], lambda record: record.offset == 3)
        await test(follower, group)

    asyncio.run(within())


def offsets(partition: Partition) -> list[int]:
    return [record.offset for record in read_all(partition.log)]


def test_a_replacement_waits_for_the_running_flush_and_flushes_follow() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        flusher, tp = manager._log_flusher, partition.topic_partition
        job = partition.log.start_flush(NOW, force=True)
        assert job is not None
        go_on = asyncio.Event()

        async def flush() -> None:
            await go_on.wait()
            job.run()
            partition.log.finish_flush(job, NOW)
            del flusher._running[tp]
            manager.carry_out(partition.flushed(NOW))

        flusher._running[tp] = asyncio.create_task(flush())
        replacing = asyncio.create_task(
            manager.replacements.replace(partition, group, generation=partition.log.generation)
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert partition.log.replacing
        assert offsets(partition) == list(range(10))
        assert not await manager.replacements.replace(partition, group, generation=0)
        partition.config = replace(partition.config, flush_messages=1)
        manager.carry_out(partition.promise_flush(NOW))
        go_on.set()
        assert await replacing
        assert (offsets(partition), partition.log.log_end_offset) == ([3], 10)
        assert not partition.log.replacing
        await flusher.end_flushes(partition)
        assert not partition.flush_pending

    run(test)


def test_a_promised_flush_follows_the_replacement() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        replacing = asyncio.create_task(
            manager.replacements.replace(partition, group, generation=partition.log.generation)
        )
        await asyncio.sleep(0)
        assert partition.log.replacing
        before = partition.log.recovery_point
        partition.append_as_follower(
            stored(10),
            fetch_offset=10,
            leader_epoch=0,
            high_watermark=0,
            log_start_offset=0,
            now_ms=NOW,
        )
        partition.config = replace(partition.config, flush_messages=1)
        assert partition.promise_flush(NOW) == []
        assert (partition.flush_pending, partition.log.recovery_point) == (True, before)
        assert await replacing
        while partition.flush_pending:
            await asyncio.sleep(0)
        assert partition.log.recovery_point == 11

    run(test)


def test_a_truncation_that_begins_meanwhile_comes_first() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        replacing = asyncio.create_task(
            manager.replacements.replace(partition, group, generation=partition.log.generation)
        )
        await asyncio.sleep(0)
        assert partition.log.replacing
        assert await follower.truncate(0, 4) is not None
        assert not await replacing
        assert offsets(partition) == [0, 1, 2, 3]
        assert partition.log.offline is None
        assert not partition.log.truncating
        assert not partition.log.replacing

    run(test)


def test_a_replacement_goes_on_when_the_cleaner_is_gone_and_a_close_waits_for_it() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        replacing = asyncio.create_task(
            manager.replacements.replace(partition, group, generation=partition.log.generation)
        )
        await asyncio.sleep(0)
        replacing.cancel()
        assert await manager.close() == [follower.log_dir]
        follower.backend.end_process()
        again = await Follower.start(follower.backend, new=False)
        assert offsets(again[0]) == [3]

    run(test)


@pytest.mark.parametrize("step", [".log.cleaned", "clean-offset"])
def test_a_topic_is_deleted_after_the_step_of_a_cleaning_that_is_running(step: str) -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager, half = follower[0], follower.replica_manager, follower.backend
        generation = partition.log.generation
        working, go_on = threading.Event(), threading.Event()

        def hold(_: Operation, path: str) -> None:
            if path.endswith(step) and not working.is_set():
                working.set()
                go_on.wait(30)

        half.faults.slow = hold

        async def clean() -> None:
            replacements = manager.replacements
            assert await replacements.replace(partition, group, generation=generation)
            await replacements.advance_clean_offset(partition, 10, generation=generation)

        cleaning = asyncio.create_task(manager.replacements.run_cleaning(partition, clean))
        await until(working.is_set)
        manager.image.replay_commit(2, [TopicDeleted(topic="t", topic_id=partition.topic_id)])
        deleting = asyncio.create_task(manager.apply(manager.image, lead=True))
        await until(lambda: manager.get(partition.topic_partition) is None)
        await asyncio.wait([deleting], timeout=0.2)
        assert half.is_folder("broker-1/t-0")
        go_on.set()
        assert not await cleaning
        await deleting
        assert partition.log.offline is None
        assert partition.log.clean_offset == (10 if step == "clean-offset" else None)
        assert not half.is_folder("broker-1/t-0")

    run(test)


def test_a_closed_partition_is_left_alone() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        manager._partitions.remove(partition.topic_partition)
        replacements = manager.replacements
        assert not await replacements.replace(partition, group, generation=0)
        assert not partition.log.replacing
        assert not await replacements.advance_clean_offset(partition, 10, generation=0)
        assert partition.log.clean_offset is None

        async def clean() -> None:
            raise AssertionError("this log is closed")

        assert not await replacements.run_cleaning(partition, clean)

    run(test)


def test_a_disk_that_fails_takes_the_replica_offline() -> None:
    async def test(follower: Follower, group: CleanedGroup) -> None:
        partition, manager = follower[0], follower.replica_manager
        follower.backend.faults.fail_next(2, operation="flush_folder")
        with pytest.raises(StorageError):
            await manager.replacements.replace(partition, group, generation=0)
        assert partition.log.offline is not None
        assert partition.topic_partition in manager.offline

    run(test)
