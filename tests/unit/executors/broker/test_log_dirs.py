"""A broker with several data directories, and what becomes of it when they fail one by one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, LockedError, StorageError
from sparklog.executors.log_dirs.broker_dir import BrokerStartError, MetaProperties
from sparklog.executors.log_dirs.log_dirs import LogDirs, lock_log_dirs
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run

A, B, C, D = (UUID(int=number) for number in (0xA, 0xB, 0xC, 0xD))
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
FOREVER = 1 << 30


# -- taking log directories


@pytest.fixture(autouse=True)
def _forget_disks() -> Iterator[None]:
    yield
    while _made:
        forget_disk(_made.pop())


_made: list[str] = []


def disks(count: int) -> list[MemoryBackend]:
    """Disks without anything on them, not even their root."""
    _made.extend(f"log-dirs-{number}" for number in range(count))
    return [MemoryBackend(named_disk(name), "data") for name in _made[-count:]]


def take(halves: list[MemoryBackend], ids: list[UUID], *, new: bool = True, **more: Any) -> Any:
    given = iter(ids)
    values = {"cluster_id": "c", "node_id": 1, "new": new, "new_id": lambda: next(given), **more}
    return lock_log_dirs(halves, "broker-1", **values)


def metas(halves: list[MemoryBackend]) -> list[tuple[UUID, tuple[UUID, ...]]]:
    found = [MetaProperties.decode(half.read("broker-1/meta.properties")) for half in halves]
    return [(meta.directory_id, meta.directories) for meta in found]


def test_new_log_directories_know_each_other_and_the_first_gives_the_broker_its_identity() -> None:
    halves = disks(2)
    log_dirs = take(halves, [A, B])
    assert (log_dirs.directory_id, log_dirs.missing, log_dirs.failed) == (A, (), [])
    log_dirs.release()
    assert metas(halves) == [(A, (A, B)), (B, (A, B))]
    again = take(halves, [C, D], new=False)
    assert (again.directory_id, again.missing) == (A, ())
    again.release()


def test_a_single_log_directory_has_the_properties_that_kafka_writes() -> None:
    (half,) = halves = disks(1)
    take(halves, [A]).release()
    assert b"sparklog" not in half.read("broker-1/meta.properties")


def test_a_disk_that_is_added_joins_and_one_that_is_taken_away_is_missing() -> None:
    first, second, third = disks(3)
    take([first], [A]).release()
    second.make_folder("")
    take([first, second], [D, B], new=False).release()
    assert metas([first, second]) == [(A, (A, B)), (B, (A, B))]
    without = take([second], [C], new=False)
    assert (without.directory_id, without.missing) == (A, (A,))
    without.release()
    absent = take([second, third], [C, D], new=False)
    assert absent.missing == (A,)
    assert [str(failure.error) for failure in absent.failed] == [
        f"{third.url} does not exist: mount it, or make it"
    ]
    absent.release()


def test_log_directories_of_different_brokers_do_not_mix() -> None:
    first, second = disks(2)
    take([first], [A]).release()
    take([second], [B]).release()
    with pytest.raises(BrokerStartError, match="never belonged to the same broker"):
        take([first, second], [C, D], new=False)
    take([first], [C], new=False).release()  # no lock was left behind


def test_a_broker_that_is_not_new_needs_one_of_its_log_directories() -> None:
    with pytest.raises(BrokerStartError, match="holds no log directory broker-1") as caught:
        take(disks(2), [A, B], new=False)
    assert caught.value.kind == "not_here"


def test_a_lock_on_any_log_directory_keeps_all_of_them() -> None:
    halves = disks(2)
    held = take(halves, [A, B])
    with pytest.raises(LockedError):
        take(halves, [C, D])
    held.release()
    take(halves, [C, D]).release()


def test_an_unusable_log_directory_has_failed_and_without_any_there_is_no_start() -> None:
    halves = disks(2)
    take(halves, [A, B]).release()
    halves[1].disk.faults.read_only = True
    log_dirs = take(halves, [C, D], new=False)
    assert [log_dir.location for log_dir in log_dirs] == [f"{halves[0].url}/broker-1"]
    assert (log_dirs.missing, log_dirs.clean) == ((B,), False)
    log_dirs.release()
    halves[0].disk.faults.read_only = True
    with pytest.raises(StorageError, match="read-only"):
        take(halves, [C, D], new=False)


def test_a_partition_in_two_log_directories_is_refused_by_name() -> None:
    halves = disks(2)
    take(halves, [A, B]).release()
    for half in halves:
        half.make_folder("broker-1/t-0")
    with pytest.raises(BrokerStartError, match="t-0 lies in both"):
        take(halves, [C, D], new=False)


def test_a_name_whose_old_log_directory_could_not_be_deleted_is_not_made_in_another() -> None:
    log_dirs = take(disks(2), [A, B])
    tp = TopicPartition("t", 0)
    first = log_dirs.choose(tp)
    log_dirs.choose(TopicPartition("t", 1))
    log_dirs.choose(TopicPartition("t", 2))
    log_dirs.forget(tp)
    log_dirs.remember(tp, first)
    assert log_dirs.home(tp, is_new=True) is first
    log_dirs.release()


def test_new_partitions_go_where_the_fewest_are() -> None:
    halves = disks(3)
    halves[1].make_folder("broker-1/old-0")
    log_dirs: LogDirs = take(halves, [A, B, C])
    homes = [log_dirs.choose(TopicPartition("t", number)) for number in range(5)]
    order = [log_dirs.working.index(home) for home in homes]
    assert order == [0, 2, 0, 1, 2]
    log_dirs.forget(TopicPartition("t", 3))
    assert log_dirs.choose(TopicPartition("u", 0)) is log_dirs.working[1]
    log_dirs.release()


# -- a broker on several disks


class Disks:
    """Further disks of a rig's broker."""

    def __init__(self, rig: Rig, count: int) -> None:
        self.names = [f"{rig.disk_name}-more-{number}" for number in range(count)]

    @property
    def urls(self) -> list[str]:
        return [f"memory://{name}/data" for name in self.names]

    def backend(self, number: int = 0) -> MemoryBackend:
        return MemoryBackend(named_disk(self.names[number]), "data")

    def break_down(self, number: int = 0) -> None:
        self.backend(number).faults.fail_next(FOREVER)


def with_disks(test: Callable[[Rig, Disks], Awaitable[None]], count: int = 1) -> None:
    async def body(rig: Rig) -> None:
        further = Disks(rig, count)
        try:
            await test(rig, further)
        finally:
            for name in further.names:
                forget_disk(name)

    run(body)


async def start(rig: Rig, further: Disks, **changes: Any) -> Client:
    await rig.start_broker(more_data_dirs=further.urls, **changes)
    return await rig.client()


async def log_dirs(client: Client, topics: Any = None) -> list[DescribeLogDirsResult]:
    response = await client.ask(DescribeLogDirsRequest(topics=topics))
    assert isinstance(response, DescribeLogDirsResponse)
    assert response.error_code == 0
    return list(response.results)


def where(results: list[DescribeLogDirsResult]) -> list[tuple[int, list[str]]]:
    return [
        (
            result.error_code,
            [f"{t.name}-{p.partition_index}" for t in result.topics for p in t.partitions],
        )
        for result in results
    ]


def test_partitions_are_spread_and_described_with_their_sizes() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        await client.create_topic("t", 4)
        await rig.leads(4)
        record = batch(b"a")
        by_home = dict(zip((0, 1), await log_dirs(client), strict=True))
        first = by_home[1].topics[0].partitions[0].partition_index
        assert (await client.produce("t", record, partition=first)).error_code == 0
        further.backend().faults.capacity_bytes = 10_000_000
        home, other = await log_dirs(client)
        assert [len(r.topics[0].partitions) for r in (home, other)] == [2, 2]
        assert home.log_dir == f"memory://{rig.disk_name}/data/broker-1"
        assert (home.total_bytes, home.usable_bytes) == (-1, -1)
        assert other.log_dir == f"{further.urls[0]}/broker-1"
        assert other.total_bytes == 10_000_000
        assert 0 < other.usable_bytes < 10_000_000
        wanted = (DescribableLogDirTopic(topic="t", partitions=(first, 77)),)
        found = await log_dirs(client, wanted)
        assert [result.topics for result in found] == [
            (),
            (
                DescribeLogDirsTopic(
                    name="t",
                    partitions=(
                        DescribeLogDirsPartition(partition_index=first, partition_size=len(record)),
                    ),
                ),
            ),
        ]
        for version in range(1, 6):
            response = await client.ask(DescribeLogDirsRequest(topics=wanted), version)
            assert [len(result.topics) for result in response.results] == [0, 1]

    with_disks(test)


def test_each_disk_is_recovered_and_marked_clean_by_itself() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        await client.create_topic("t", 2)
        await rig.leads(2)
        for number in range(2):
            assert (await client.produce("t", batch(b"x"), partition=number)).error_code == 0
        await rig.stop_broker()
        for half in (rig.disk, further.backend()):
            assert half.exists("broker-1/.kafka_cleanshutdown")
            lines = half.read("broker-1/recovery-point-offset-checkpoint").splitlines()
            assert len(lines) == 3
        further.backend().delete("broker-1/.kafka_cleanshutdown")
        client = await start(rig, further, new=False)
        status = await rig.status()
        assert (status["clean_start"], status["segments_recovered"]) == (False, 1)
        for number in range(2):
            assert await client.fetch("t", partition=number) == (0, [b"x"])

    with_disks(test)


async def _two_homes(client: Client, rig: Rig) -> tuple[int, int]:
    """A topic with a partition on either disk; their numbers."""
    await client.create_topic("t", 2, flush_messages="1")
    await rig.leads(2)
    here, there = where(await log_dirs(client))
    return int(here[1][0][2:]), int(there[1][0][2:])


def test_when_a_disk_fails_its_replicas_go_offline_and_the_others_go_on() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        here, there = await _two_homes(client, rig)
        assert (await client.produce("t", batch(b"1"), partition=there)).error_code == 0
        waiting = asyncio.create_task(
            client_of_its_own(rig, lambda c: c.fetch("t", 1, partition=there, max_wait_ms=20_000))
        )
        await until(
            lambda: len(rig.brokers[1].replica_manager.delayed_operations.consumer_fetches) == 1
        )
        further.break_down()
        assert (await client.produce("t", batch(b"2"), partition=there)).error_code == STORAGE
        await until(lambda: bool(rig.brokers[1].replica_manager.log_dirs.failed))
        assert (await waiting)[0] == STORAGE
        assert (await client.produce("t", batch(b"3"), partition=there)).error_code == STORAGE
        assert (await client.fetch("t", partition=there))[0] == STORAGE
        assert (await client.produce("t", batch(b"4"), partition=here)).error_code == 0
        assert await client.fetch("t", partition=here) == (0, [b"4"])
        assert where(await log_dirs(client)) == [(0, [f"t-{here}"]), (STORAGE, [])]
        status = await rig.status()
        location = f"{further.urls[0]}/broker-1"
        assert "the device failed" in status["data_dirs"][location]
        assert list(status["offline"]) == [f"t-{there}"]
        await client.create_topic("u", 3)
        await rig.leads(1 + 3)
        assert where(await log_dirs(client))[0] == (0, [f"t-{here}", "u-0", "u-1", "u-2"])
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=5000))
        await until(lambda: not rig.brokers[1].replica_manager.offline)
        await rig.stop_broker()
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")

    with_disks(test)


async def client_of_its_own(rig: Rig, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    return await ask(await rig.client())


@pytest.mark.parametrize("fault", [{"capacity_bytes": 0}, {"read_only": True}])
def test_a_disk_that_is_full_or_read_only_has_not_failed(fault: dict[str, Any]) -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        _, there = await _two_homes(client, rig)
        for name, value in fault.items():
            setattr(further.backend().faults, name, value)
        assert (await client.produce("t", batch(b"1"), partition=there)).error_code == STORAGE
        await rig.brokers[1].replica_manager.failures.disk_watch.close()
        assert rig.brokers[1].replica_manager.log_dirs.failed == []
        further.backend().faults.clear()
        assert (await client.produce("t", batch(b"2"), partition=there)).error_code == 0
        assert await client.fetch("t", partition=there) == (0, [b"2"])

    with_disks(test)


def test_one_bad_flush_takes_its_partition_offline_and_not_the_disk() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        await client.create_topic("t", 4, flush_messages="1")
        await rig.leads(4)
        bad, good = (int(name[2:]) for name in where(await log_dirs(client))[1][1])
        further.backend().faults.fail_next(operation="flush", under=f"t-{bad}/")
        assert (await client.produce("t", batch(b"1"), partition=bad)).error_code == STORAGE
        await rig.brokers[1].replica_manager.failures.disk_watch.close()
        assert rig.brokers[1].replica_manager.log_dirs.failed == []
        assert (await client.produce("t", batch(b"1"), partition=good)).error_code == 0

    with_disks(test)


def test_without_any_disk_the_broker_ends_and_says_why() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        here, there = await _two_homes(client, rig)
        further.break_down()
        rig.disk.faults.fail_next(FOREVER, under="data/")
        for number in (here, there):
            assert (await client.produce("t", batch(b"1"), partition=number)).error_code == STORAGE
        task = rig._tasks.pop(1)
        rig.brokers.pop(1)
        with pytest.raises(StorageError, match=r"every data directory has failed: .*; .*broker-1"):
            await task
        rig.disk.faults.clear()

    with_disks(test)


def test_partitions_of_a_missing_disk_are_not_made_anew_and_come_back_with_it() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        here, there = await _two_homes(client, rig)
        for number in (here, there):
            assert (await client.produce("t", batch(b"x"), partition=number)).error_code == 0
        identity = rig.brokers[1].directory_id
        await rig.stop_broker()
        await rig.start_broker(new=False)  # only the first directory is named
        client = await rig.client()
        assert rig.brokers[1].directory_id == identity
        assert await client.fetch("t", partition=here) == (0, [b"x"])
        assert (await client.fetch("t", partition=there))[0] == STORAGE
        status = await rig.status()
        assert len(status["data_dirs_missing"]) == 1
        assert "is missing: mount its disk" in status["offline"][f"t-{there}"]
        await client.create_topic("u", 1)
        await until(lambda: rig.brokers[1].replica_manager.get(TopicPartition("u", 0)) is not None)
        await rig.stop_broker()
        client = await start(rig, further, new=False)
        assert (await rig.status())["data_dirs_missing"] == []
        for number in (here, there):
            assert await client.fetch("t", partition=number) == (0, [b"x"])

    with_disks(test)


def test_the_first_disk_may_be_the_one_that_is_replaced_by_an_empty_one() -> None:
    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        here, there = await _two_homes(client, rig)
        assert (await client.produce("t", batch(b"x"), partition=there)).error_code == 0
        identity = rig.brokers[1].directory_id
        await rig.stop_broker()
        rig.disk.remove_folder("broker-1")
        client = await start(rig, further, new=False)
        assert rig.brokers[1].directory_id == identity
        assert await client.fetch("t", partition=there) == (0, [b"x"])
        assert (await client.fetch("t", partition=here))[0] == STORAGE
        await client.create_topic("u", 1)
        await rig.leads(2)
        results = {result.log_dir: result for result in await log_dirs(client)}
        fresh = results[f"memory://{rig.disk_name}/data/broker-1"]
        assert where([fresh]) == [(0, ["u-0"])]

    with_disks(test)
