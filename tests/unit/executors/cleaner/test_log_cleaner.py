"""The log cleaner of a broker: what it cleans and when, and what it tells."""

import sys
from pathlib import Path

import pytest

from sparklog.executors.broker import Broker
from sparklog.executors.cleaner import choice, cleaner_process, log_cleaner
from sparklog.executors.cleaner.cleaner_process import CleaningError
from sparklog.executors.cleaner.job import CleaningJob, CleaningReport
from sparklog.executors.log.names import CLEAN_OFFSET
from sparklog.executors.log.offset_file import decode_offset
from sparklog.storage_backends.base import FileHalf
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.fetch import FetchPartition
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import next_offset
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run

COMPACT = {"cleanup_policy": "compact", "segment_bytes": "300", "min_cleanable_dirty_ratio": "0.01"}
TP = TopicPartition("t", 0)
SOON = {"log_cleaner_backoff_ms": "20"}
#: The broker never cleans by itself, so that nothing but the test calls ``clean_next``.
ALONE = {"log_cleaner_enable": "false"}


async def put(client: Client, *pairs: tuple[bytes, bytes | None]) -> None:
    for key, value in pairs:
        result = await client.produce("t", encode_batch([Record(key=key, value=value)]))
        assert result.error_code == 0, result


def numbered(first: int, count: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"k%d" % (n % 3), b"%d" % n) for n in range(first, first + count)]


async def read_all(client: Client) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record, as a consumer reads them."""
    found: list[tuple[int, bytes | None]] = []
    offset: int | None = 0
    while offset is not None:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        response = await client.fetch_all("t", (part,))
        data = bytes(response.responses[0].partitions[0].records or b"")
        found += [(record.offset, record.value) for record in decode_records(data)]
        offset = next_offset(data)
    return found


async def until_clean(broker: Broker, offset: int) -> None:
    """Wait until the file says that the log is clean below the offset."""
    half = broker.replica_manager.log_dirs.working[0].half

    def is_clean() -> bool:
        data = half.read_if_there(f"broker-1/{TP}/{CLEAN_OFFSET}")
        return data is not None and (decode_offset(data) or 0) >= offset

    await until(is_clean)


async def until_flushed(broker: Broker) -> None:
    """Wait until all sealed segments are flushed."""
    (partition,) = broker.replica_manager
    log = partition.log
    await until(lambda: log.recovery_point >= log.segments[-1].base_offset)


def test_the_last_value_of_every_key_is_left_at_its_offset() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        (partition,) = broker.replica_manager
        await until_clean(broker, partition.log.segments[-1].base_offset)
        active = partition.log.segments[-1].base_offset
        kept = [n for n in range(60) if n >= active - 3]
        assert await read_all(client) == [(n, b"%d" % n) for n in kept]
        status = await rig.status()
        assert status["logs_cleaned"] >= 1
        assert status["cleaner_bytes_read"] > status["cleaner_bytes_written"] > 0
        assert (status["logs_not_cleanable"], status["cleanings_failed"]) == ({}, 0)
        partition.log.check_invariants()

    run(test, **SOON)


def test_a_broker_with_files_lets_a_child_clean(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker(data_dir=str(tmp_path))
        client = await rig.client()
        await client.create_topic("t", **COMPACT)
        await rig.leads(1)
        await put(client, *numbered(0, 60))
        (partition,) = broker.replica_manager
        active = partition.log.segments[-1].base_offset
        await until_clean(broker, active)
        assert await read_all(client) == [(n, b"%d" % n) for n in range(active - 3, 60)]
        assert broker.replica_manager.counters.cleanings_failed == 0
        partition.log.check_invariants()

    run(test, log_cleaner_backoff_ms="200")


def test_a_restarted_broker_knows_what_is_clean() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        (partition,) = rig.brokers[1].replica_manager
        active = partition.log.segments[-1].base_offset
        await until_clean(rig.brokers[1], active)
        await rig.stop_broker()
        broker = await rig.start_broker(new=False)
        await rig.leads(1)
        client = await rig.client()
        await put(client, *numbered(60, 30))
        (partition,) = broker.replica_manager
        seen: list[int] = []
        running = broker.log_cleaner._run_cleaning

        async def note(half: FileHalf, job: CleaningJob) -> CleaningReport:
            seen.append(job.first_dirty)
            return await running(half, job)

        broker.log_cleaner._run_cleaning = note
        await until_clean(broker, partition.log.segments[-1].base_offset)
        assert all(first >= active for first in seen)
        partition.log.check_invariants()

    run(test, **SOON)


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_is_made_again_is_cleaned_from_its_start(restart: bool) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        await until_flushed(broker)
        assert await broker.log_cleaner.clean_next()
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=5000))
        await until(lambda: not list(broker.replica_manager))
        await client.create_topic("t", **COMPACT, delete_retention_ms="0")
        await rig.leads(1)
        await put(client, (b"gone", b"OLD"), *numbered(0, 9), (b"gone", None), *numbered(9, 100))
        if restart:
            await rig.stop_broker()
            broker = await rig.start_broker(new=False)
            await rig.leads(1)
            client = await rig.client()
        (partition,) = broker.replica_manager
        assert restart or partition.log.clean_offset is None
        for turn in range(3):
            await put(client, *numbered(200 + 20 * turn, 20))
            await until_flushed(broker)
            await broker.log_cleaner.clean_next()
        assert (0, b"OLD") not in await read_all(client)

    run(test, **ALONE)


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**{**COMPACT, "cleanup_policy": "delete"})
        await put(client, *numbered(0, 30))
        assert not await rig.brokers[1].log_cleaner.clean_next()
        await client.alter(ResourceType.TOPIC, "t", cleanup_policy="compact,delete")
        (partition,) = rig.brokers[1].replica_manager
        await until(lambda: partition.config.compacts)
        await until(lambda: partition.log.recovery_point >= partition.log.segments[-1].base_offset)
        assert await rig.brokers[1].log_cleaner.clean_next()

    run(test, **ALONE)


class FailingRun:
    """Fails until it is told to work; ``jobs`` are the jobs so far."""

    def __init__(self) -> None:
        self.jobs: list[CleaningJob] = []
        self.fails = True

    async def __call__(self, half: FileHalf, job: CleaningJob) -> CleaningReport:
        self.jobs.append(job)
        if self.fails:
            raise CleaningError("died", "the cleaner's process was ended by SIGKILL")
        return await log_cleaner.run_cleaning(half, job)


def test_a_log_that_cannot_be_cleaned_is_set_aside_and_told_and_heals() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        cleaner, failing = broker.log_cleaner, FailingRun()
        cleaner._run_cleaning = failing
        (partition,) = broker.replica_manager
        await until(lambda: partition.log.recovery_point >= partition.log.segments[-1].base_offset)
        clock = broker.replica_manager.now_ms
        ahead_ms = 0
        broker.replica_manager.now_ms = lambda: clock() + ahead_ms
        for failures in range(1, 4):
            assert await cleaner.clean_next()
            assert not await cleaner.clean_next()
            status = await rig.status()
            assert status["cleanings_failed"] == failures
            assert (status["logs_not_cleanable"] != {}) == (failures == 3)
            ahead_ms += 3_600_000
        assert status["logs_not_cleanable"] == {"t-0": "the cleaner's process was ended by SIGKILL"}
        failing.fails = False
        assert await cleaner.clean_next()
        status = await rig.status()
        assert (status["logs_not_cleanable"], status["logs_cleaned"]) == ({}, 1)

    run(test, **ALONE)


@pytest.mark.parametrize("change", ["truncated", "closed"])
def test_a_result_is_thrown_away_if_the_log_has_changed_meanwhile(change: str) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        (partition,) = broker.replica_manager
        await until(lambda: partition.log.recovery_point >= partition.log.segments[-1].base_offset)
        sizes = [segment.size for segment in partition.log.segments]

        async def run_and_change(half: FileHalf, job: CleaningJob) -> CleaningReport:
            report = await log_cleaner.run_cleaning(half, job)
            assert report.groups
            if change == "truncated":
                partition.log._flush.generation += 1
            else:
                monkey = broker.replica_manager
                monkey.get = lambda tp: None  # type: ignore[method-assign]
            return report

        broker.log_cleaner._run_cleaning = run_and_change
        assert await broker.log_cleaner.clean_next()
        assert [segment.size for segment in partition.log.segments] == sizes
        half = broker.replica_manager.log_dirs.working[0].half
        assert [n for n in half.list("broker-1/t-0") if n.endswith(".cleaned")] == []
        assert broker.replica_manager.counters.cleanings_failed == 0

    run(test, **ALONE)


def test_a_segment_that_retention_deletes_meanwhile_is_no_failure() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT | {"cleanup_policy": "compact,delete"})
        await put(client, *numbered(0, 60))
        broker = rig.brokers[1]
        await until_flushed(broker)
        (partition,) = broker.replica_manager
        log, replica_manager = partition.log, broker.replica_manager

        async def delete_and_run(half: FileHalf, job: CleaningJob) -> CleaningReport:
            log.advance_log_start(log.segments[2].base_offset)
            assert log.delete_old_segments(replica_manager.now_ms(), log.log_end_offset) >= 2
            return await log_cleaner.run_cleaning(half, job)

        running = broker.log_cleaner._run_cleaning
        broker.log_cleaner._run_cleaning = delete_and_run
        assert await broker.log_cleaner.clean_next()
        assert replica_manager.counters.cleanings_failed == 0
        broker.log_cleaner._run_cleaning = running
        assert await broker.log_cleaner.clean_next()
        assert replica_manager.counters.logs_cleaned == 1
        log.check_invariants()

    run(test, **ALONE)


def test_the_settings_of_the_cleaner_take_effect_while_it_runs() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        broker = rig.brokers[1]
        failing = FailingRun()
        broker.log_cleaner._run_cleaning = failing
        await put(client, *numbered(0, 60))
        (partition,) = broker.replica_manager
        await until(lambda: partition.log.recovery_point >= partition.log.segments[-1].base_offset)
        await client.alter(ResourceType.BROKER, "", log_cleaner_threads="0")
        config = broker.replica_manager
        await until(lambda: config.broker_config.log_cleaner_threads == 0)
        assert not await broker.log_cleaner.clean_next()
        await client.alter(
            ResourceType.BROKER,
            "",
            log_cleaner_threads="1",
            log_cleaner_dedupe_buffer_size="1048577",
            log_cleaner_io_buffer_size="70000",
            log_cleaner_io_max_bytes_per_second="5000000",
            log_cleaner_backoff_ms="1",
        )
        await until(lambda: len(failing.jobs) > 0)
        job = failing.jobs[0]
        assert (job.dedupe_buffer_size, job.io_buffer_size) == (1048577, 70000)
        assert job.io_max_bytes_per_second == 5_000_000

    run(test, log_cleaner_backoff_ms="600000")


#: The cleaner's process, which may write no file beyond so many bytes, as on a full disk.
FULL_DISK = """
import resource, runpy, sys
sys.dont_write_bytecode = True  # a .pyc file that is cut off breaks every later import
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
runpy.run_module("sparklog.executors.cleaner", run_name="__main__")
"""


def test_a_disk_that_is_full_for_the_cleaner_costs_nothing_but_the_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker(data_dir=str(tmp_path))
        client = await rig.client()
        await client.create_topic("t", **COMPACT)
        await rig.leads(1)
        await put(client, *numbered(0, 60))
        await until_flushed(broker)
        cleaner, replica_manager = broker.log_cleaner, broker.replica_manager
        clock, ahead_ms = replica_manager.now_ms, 0
        replica_manager.now_ms = lambda: clock() + ahead_ms
        half = replica_manager.log_dirs.working[0].half
        before = await read_all(client)
        whole = cleaner_process.COMMAND
        full = (sys.executable, "-c", FULL_DISK.format(size=100))
        monkeypatch.setattr(cleaner_process, "COMMAND", full)
        monkeypatch.setattr(choice, "FAILURES_MAX", 1)
        assert await cleaner.clean_next()
        status = await rig.status()
        assert "cannot write to" in status["logs_not_cleanable"]["t-0"]
        names = half.list(f"broker-1/{TP}")
        assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
        assert await read_all(client) == before
        assert not await cleaner.clean_next()
        await put(client, *numbered(60, 3))
        await until_flushed(broker)
        ahead_ms += 3_600_000  # after the flush: a flush that is planned waits for this clock
        monkeypatch.setattr(cleaner_process, "COMMAND", whole)
        assert await cleaner.clean_next()
        status = await rig.status()
        assert (status["logs_not_cleanable"], status["logs_cleaned"]) == ({}, 1)
        (partition,) = replica_manager
        active = partition.log.segments[-1].base_offset
        assert await read_all(client) == [(n, b"%d" % n) for n in range(active - 3, 63)]
        partition.log.check_invariants()

    run(test, **ALONE)
