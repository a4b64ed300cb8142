"""Truncations of followers' logs in worker threads: first the checkpoint, then the truncation."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.executors.partition import EpochEnd
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.metadata.records import TopicCreated
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

NODE, LEADER, NOW = 1, 2, 1_700_000_000_000
COUNT = 5


class Follower:
    """A broker whose replicas have ten records each and follow another broker."""

    def __init__(self, log_dir: BrokerDir) -> None:
        self.log_dir = log_dir
        self.replica_manager = ReplicaManager(
            node_id=NODE,
            log_dirs=LogDirs([log_dir]),
            settings={"log.open.files.max": "16"},
            counters=BrokerMetrics(),
            now_ms=lambda: NOW,
            monotonic_ms=lambda: NOW,
            random_bytes=bytes,
        )
        self.written: list[str] = []

    @property
    def backend(self) -> MemoryBackend:
        assert isinstance(self.log_dir.half, MemoryBackend)
        return self.log_dir.half

    @classmethod
    async def start(cls, backend: FileHalf, *, new: bool = True) -> "Follower":
        log_dir = BrokerDir.take(
            backend, "broker-1", cluster_id="c", node_id=NODE, new=new, new_id=UUID(int=1)
        )
        follower = cls(log_dir)
        both = (NODE, LEADER)
        state = PartitionImage(replicas=both, isr=both, last_known=both, leader=LEADER)
        image = ClusterImage()
        topic = TopicCreated(topic="t", topic_id=UUID(int=7), partitions=(state,) * COUNT)
        image.replay_commit(1, [topic])
        await follower.replica_manager.apply(image, lead=True)
        return follower

    def __getitem__(self, number: int) -> Partition:
        partition = self.replica_manager.get(TopicPartition("t", number))
        assert partition is not None
        return partition

    def fill(self, *, flushed: bool) -> None:
        for number in range(COUNT):
            for offset in range(self[number].log.log_end_offset, 10):
                self[number].append_as_follower(
                    stored(offset),
                    fetch_offset=offset,
                    leader_epoch=0,
                    high_watermark=0,
                    log_start_offset=0,
                    now_ms=NOW,
                )
            if flushed:
                self[number].log.flush(NOW)

    def watch(self) -> None:
        """Note every file that is put or truncated from now on."""

        def note(operation: Operation, path: str) -> None:
            if operation in ("put", "truncate"):
                self.written.append(path.rpartition("broker-1/")[2])

        self.backend.faults.slow = note

    async def truncate(self, number: int, end_offset: int) -> object:
        return await self.replica_manager.truncations.truncate(
            self[number], EpochEnd(0, end_offset), leader_epoch=0
        )


def stored(offset: int) -> bytes:
    return encode_batch(
        [Record(value=b"v%d" % offset, timestamp=NOW)], base_offset=offset, leader_epoch=0
    )


def run(test: Callable[[Follower], Awaitable[None]], *, flushed: bool = True) -> None:
    async def within() -> None:
        follower = await Follower.start(MemoryBackend())
        follower.fill(flushed=flushed)
        await follower.replica_manager.checkpoints.write()
        await test(follower)

    asyncio.run(within())


POINTS = "recovery-point-offset-checkpoint"


def test_the_recovery_point_is_on_the_disk_before_the_log_is_cut() -> None:
    async def test(follower: Follower) -> None:
        follower.watch()
        assert await follower.truncate(0, 4) is not None
        points = follower.written.index(POINTS)
        assert points < follower.written.index("t-0/00000000000000000000.log")
        assert follower[0].log.log_end_offset == follower[0].log.recovery_point == 4
        assert follower[0].fetch_position() is not None

    run(test)


def test_many_logs_share_the_writes() -> None:
    async def test(follower: Follower) -> None:
        follower.watch()
        await asyncio.gather(*(follower.truncate(number, number) for number in range(COUNT)))
        assert [follower[number].log.log_end_offset for number in range(COUNT)] == [*range(COUNT)]
        assert follower.written.count(POINTS) <= 2

    run(test)


def test_what_the_disk_allows_already_is_not_written_again() -> None:
    async def test(follower: Follower) -> None:
        follower.watch()
        assert await follower.truncate(0, 4) is not None
        assert POINTS not in follower.written
        assert await follower.truncate(0, 4) is None

    run(test, flushed=False)


def test_a_write_under_way_may_say_too_much() -> None:
    """A checkpoint with the recovery points from before the truncation is not written yet."""

    async def test(follower: Follower) -> None:
        follower[0].log.flush(NOW)
        writing = asyncio.create_task(follower.replica_manager.checkpoints.write())
        await asyncio.sleep(0)
        assert await follower.truncate(0, 4) is not None
        await writing
        follower.backend.crash(lose_names=True)
        again = await Follower.start(follower.backend, new=False)
        assert again[0].log.log_end_offset == 4

    run(test, flushed=False)


def test_a_write_that_failed_may_have_said_too_much() -> None:
    async def test(follower: Follower) -> None:
        follower[0].log.flush(NOW)
        follower.backend.faults.fail_next(operation="put", under=POINTS, after=True)
        with pytest.raises(StorageError):
            await follower.replica_manager.checkpoints.write()
        assert await follower.truncate(0, 4) is not None
        follower.backend.crash(lose_names=True)
        again = await Follower.start(follower.backend, new=False)
        assert again[0].log.log_end_offset == 4

    run(test, flushed=False)


def test_other_logs_are_used_while_one_is_cut(tmp_path: Path) -> None:
    """On real files, fewer of which may be open than are in use."""

    async def test() -> None:
        follower = await Follower.start(LocalBackend(str(tmp_path)))
        follower.fill(flushed=True)
        done = 0
        truncations = [
            asyncio.create_task(follower.truncate(number, 9 - number)) for number in range(4)
        ]
        while not all(task.done() for task in truncations):
            found = follower[4].log.read(done % 10, 1000, end_offset=10)
            assert found.region is not None
            assert len(found.region.read()) == found.size
            found.region.release()
            done += 1
            await asyncio.sleep(0)
        assert done > 1
        for number in range(4):
            log = follower[number].log
            assert log.log_end_offset == 9 - number
            log.check_invariants()
        await follower.replica_manager.close()

    asyncio.run(test())


def test_a_flush_under_way_ends_first() -> None:
    async def test(follower: Follower) -> None:
        partition = follower[0]
        replica_manager = follower.replica_manager
        go_on = asyncio.Event()
        order: list[str] = []
        job = partition.log.start_flush(NOW, force=True)
        assert job is not None

        async def flush() -> None:
            await go_on.wait()
            order.append("flushed")
            partition.log.finish_flush(job, NOW)
            del replica_manager._log_flusher._running[partition.topic_partition]

        replica_manager._log_flusher._running[partition.topic_partition] = asyncio.create_task(
            flush()
        )
        truncation = asyncio.create_task(follower.truncate(0, 4))
        truncation.add_done_callback(lambda _: order.append("truncated"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (partition.log.truncating, partition.log.log_end_offset) == (True, 10)
        go_on.set()
        await truncation
        await asyncio.sleep(0)
        assert order == ["flushed", "truncated"]
        assert partition.log.recovery_point == 4

    run(test)


@pytest.mark.parametrize("operation", ["put", "truncate"])
def test_trouble_with_the_disk_is_told_and_nothing_else_breaks(operation: Operation) -> None:
    async def test(follower: Follower) -> None:
        follower.backend.faults.fail_next(operation=operation)
        with pytest.raises(Exception, match="fail") as told:
            await follower.truncate(0, 4)
        log = follower[0].log
        assert not log.truncating
        if operation == "put":
            assert isinstance(told.value, StorageError)
            assert (log.log_end_offset, log.recovery_point, log.offline) == (10, 10, None)
            await follower.truncate(0, 4)
            assert log.log_end_offset == 4
        else:
            assert log.offline is not None
            assert follower[0].fetch_position() is None
            await follower.replica_manager.checkpoints.write()
            assert log.recovery_point <= 4
        await follower.truncate(1, 3)
        assert follower[1].log.log_end_offset == 3

    run(test)


def test_a_role_that_comes_during_a_truncation_waits() -> None:
    async def test(follower: Follower) -> None:
        partition = follower[0]
        truncation = asyncio.create_task(follower.truncate(0, 4))
        await asyncio.sleep(0)
        leads = PartitionImage(
            replicas=(NODE, LEADER), isr=(NODE,), leader=NODE, leader_epoch=1, partition_epoch=1
        )
        assert partition.make_leader_or_follower(leads, NOW) == []
        assert not partition.is_leader
        await truncation
        assert partition.is_leader
        assert (partition.epoch_start_offset, partition.high_watermark) == (4, 4)

    run(test)


def test_a_replica_manager_that_closes_waits_for_truncations() -> None:
    """The task that asked for the truncation may be cancelled by then."""

    async def test(follower: Follower) -> None:
        truncation = asyncio.create_task(follower.truncate(0, 4))
        while not follower[0].log.truncating:
            await asyncio.sleep(0)
        truncation.cancel()
        assert await follower.replica_manager.close() == [follower.log_dir]
        assert truncation.cancelled()
        follower.backend.end_process()
        again = await Follower.start(follower.backend, new=False)
        assert again[0].log.log_end_offset == 4

    run(test)
