"""A cleaning ends before its log is closed, so that it never meets the log of a new topic."""

import asyncio
from pathlib import Path

import pytest

from sparklog.executors.broker import Broker
from sparklog.executors.cleaner.job import CleaningJob, CleaningReport
from sparklog.executors.partition import Partition
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.cleaner.test_cleaner_process import children
from tests.unit.executors.cleaner.test_log_cleaner import (
    ALONE,
    COMPACT,
    TP,
    FailingRun,
    numbered,
    put,
    read_all,
    until_flushed,
)

DIR = "broker-1/t-0"


class HeldRun:
    """A cleaning that goes on until it is cancelled, or until ``go_on`` is set."""

    def __init__(self, broker: Broker) -> None:
        self._run = broker.log_cleaner._run_cleaning
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        #: The names in the partition directory when the cleaning was cancelled and had ended.
        self.names_at_end: list[str] | None = None

    async def __call__(self, half: FileHalf, job: CleaningJob) -> CleaningReport:
        self.began.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            for _ in range(10):  # the end of a process takes a while
                await run_blocking(lambda: None)
            self.names_at_end = half.list(job.partition_dir)
            raise
        return await self._run(half, job)


async def delete(client: Client, *topics: str) -> None:
    states = tuple(DeleteTopicState(name=topic) for topic in topics)
    response = await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000))
    assert [each.error_code for each in response.responses] == [0] * len(topics)


async def make_again(rig: Rig, client: Client) -> Partition:
    """Create the topic of the same name, and wait until the broker leads its partition."""
    topic_id = await client.create_topic("t", **COMPACT)
    replica_manager = rig.brokers[1].replica_manager

    def is_led() -> bool:
        partition = replica_manager.get(TP)
        return partition is not None and partition.topic_id == topic_id and partition.is_leader

    await until(is_led)
    return replica_manager.find("t", 0)


def test_a_topic_is_deleted_after_its_cleaning_has_ended_and_can_be_made_again() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        await until_flushed(broker)
        cleaner, replica_manager = broker.log_cleaner, broker.replica_manager
        whole, held = cleaner._run_cleaning, HeldRun(broker)
        cleaner._run_cleaning = held
        cleaning = asyncio.create_task(cleaner.clean_next())
        await held.began.wait()
        names = replica_manager.log_dirs.working[0].half.list(DIR)
        await delete(client, "t")
        partition = await make_again(rig, client)
        assert held.names_at_end is not None
        assert set(names) <= set(held.names_at_end)
        assert await cleaning
        assert replica_manager.counters.cleanings_failed == 0

        cleaner._run_cleaning = whole
        await put(client, *numbered(100, 60))
        await until_flushed(broker)
        assert partition.log.clean_offset is None
        assert await cleaner.clean_next()
        active = partition.log.segments[-1].base_offset
        assert await read_all(client) == [(n, b"%d" % (100 + n)) for n in range(active - 3, 60)]
        partition.log.check_invariants()

    run(test, **ALONE)


def test_a_child_never_makes_the_directory_of_a_deleted_topic_again(tmp_path: Path) -> None:
    """A directory of the new topic's name on another disk would keep the broker from starting."""

    async def test(rig: Rig) -> None:
        disks = [tmp_path / "a", tmp_path / "b"]
        for disk in disks:
            disk.mkdir()
        data_dirs = {"data_dir": str(disks[0]), "more_data_dirs": (str(disks[1]),)}
        broker = await rig.start_broker(**data_dirs)
        client = await rig.client()
        for count, topic in enumerate("tuv", 1):
            await client.create_topic(topic, **COMPACT)
            await rig.leads(count)
        await put(client, *numbered(0, 60))
        replica_manager, before = broker.replica_manager, children()
        log = replica_manager.find("t", 0).log
        await until(lambda: log.recovery_point >= log.segments[-1].base_offset)
        cleaning = asyncio.create_task(broker.log_cleaner.clean_next())
        await until(lambda: children() > before)
        await delete(client, "u", "t")
        await make_again(rig, client)
        assert children() == before
        assert await cleaning
        homes = {path.name: path.parts[-3] for path in tmp_path.glob("*/broker-1/*-0")}
        assert homes == {"v-0": "a", "t-0": "b"}

        await rig.stop_broker()
        await rig.start_broker(**data_dirs, new=False)
        await rig.leads(2)

    # The child reads for seconds.
    run(test, **ALONE, log_cleaner_io_max_bytes_per_second="1024")


def test_a_new_topic_does_not_wait_because_the_cleanings_of_the_former_one_failed() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        await until_flushed(broker)
        failing = FailingRun()
        broker.log_cleaner._run_cleaning = failing
        assert await broker.log_cleaner.clean_next()
        assert not await broker.log_cleaner.clean_next()
        await delete(client, "t")
        await make_again(rig, client)
        await put(client, *numbered(0, 60))
        await until_flushed(broker)
        failing.fails = False
        assert await broker.log_cleaner.clean_next()
        counters = broker.replica_manager.counters
        assert (counters.cleanings_failed, counters.logs_cleaned) == (1, 1)

    run(test, **ALONE)


def test_a_second_cleaning_of_a_log_at_the_same_time_is_refused_and_touches_nothing() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        await until_flushed(broker)
        cleaner, held = broker.log_cleaner, HeldRun(broker)
        cleaner._run_cleaning = held
        cleaning = asyncio.create_task(cleaner.clean_next())
        await held.began.wait()
        with pytest.raises(AssertionError, match="t-0 is being cleaned already"):
            await cleaner.clean_next()
        held.go_on.set()
        assert await cleaning
        (partition,) = broker.replica_manager
        assert (partition.log.offline, broker.replica_manager.counters.logs_cleaned) == (None, 1)
        partition.log.check_invariants()

    run(test, **ALONE)


def test_the_stop_of_a_broker_ends_a_cleaning() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        broker = rig.brokers[1]
        held = HeldRun(broker)
        broker.log_cleaner._run_cleaning = held
        await put(client, *numbered(0, 60))
        await held.began.wait()
        await rig.stop_broker()
        assert held.names_at_end
        await rig.start_broker(new=False)
        await rig.leads(1)
        (partition,) = rig.brokers[1].replica_manager
        assert partition.log.log_end_offset == 60

    run(test, log_cleaner_backoff_ms="20")
