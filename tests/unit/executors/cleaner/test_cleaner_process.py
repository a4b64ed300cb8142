"""A cleaning in a child process: what it reports, and what is left when it fails or is killed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sparklog.executors.cleaner import cleaner_process, rewrite
from sparklog.executors.cleaner.cleaner_process import CleaningError, run_cleaning
from sparklog.executors.cleaner.job import CleaningJob, CleaningReport
from sparklog.executors.cleaner.progress import Progress
from sparklog.executors.cleaner.rewrite import clean
from sparklog.executors.log import CleanedGroup, CleanedSegment
from sparklog.process import LINE_BYTES_MAX
from sparklog.rate_throttle import RateThrottle
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.storage_backends.registry import open_file_half
from sparklog.wire.records.builder import Record
from tests.support.waiting import until
from tests.unit.executors.cleaner.model import PARTITION_DIR, FileLog, visible


def filled(half: FileHalf, count: int = 300) -> tuple[FileLog, CleaningJob]:
    """Three segments with ten keys."""
    log = FileLog(half)
    for segment in range(3):
        for number in range(count):
            value = b"%d" % (segment * count + number)
            log.append([Record(key=b"k%d" % (number % 10), value=value, timestamp=number)])
        log.roll()
    job = log.job(now_ms=1)
    assert job is not None
    return log, replace(job, url=half.url)


def cleaned_files(half: FileHalf) -> list[str]:
    return [name for name in half.list(PARTITION_DIR) if name.endswith(".cleaned")]


def children() -> set[int]:
    """The child processes of this process."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def test_a_job_and_a_report_survive_their_json() -> None:
    log, job = filled(MemoryBackend())
    job = replace(job, producers=log.last_records(), io_max_bytes_per_second=1e308)
    assert CleaningJob.from_json(job.to_json()) == job
    report = clean(log.half, job)
    assert report.groups
    assert CleaningReport.from_lines(json.loads(json.dumps(list(report.to_lines())))) == report


def child_that_runs(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the cleaner's process be this script."""
    monkeypatch.setattr(cleaner_process, "COMMAND", (sys.executable, "-c", script))


def test_a_report_may_be_longer_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = filled(open_file_half(tmp_path))
    groups = tuple(
        CleanedGroup(
            segment=CleanedSegment(base_offset=n, next_offset=n + 1, size=1, largest_offset=n),
            replaced=(n,),
        )
        for n in range(10_000)
    )
    report = CleaningReport(groups=groups, clean_offset=10_000)
    text = "".join(json.dumps(line) + "\n" for line in report.to_lines())
    assert len(text) > LINE_BYTES_MAX
    (tmp_path / "report").write_text(text)
    child_that_runs(monkeypatch, f"print(open({str(tmp_path / 'report')!r}).read(), end='')")
    assert asyncio.run(run_cleaning(open_file_half(tmp_path), job)) == report


@pytest.mark.parametrize("said", ["", "print('{\"progress\": 1}', flush=True)"])
def test_a_child_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    half, before = open_file_half(tmp_path), children()
    _, job = filled(half)
    half.put(f"{PARTITION_DIR}/{0:020d}.log.cleaned", b"1")
    child_that_runs(monkeypatch, f"import time; {said or 'pass'}; time.sleep(1000)")
    monkeypatch.setattr(cleaner_process, "STALLED_S", 0.2)
    with pytest.raises(CleaningError, match="no progress") as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "stalled"
    assert cleaned_files(half) == []
    assert children() == before


@pytest.mark.parametrize("said", ["nonsense", "[]", '{"report": {}}'])
def test_other_answers_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    half = open_file_half(tmp_path)
    _, job = filled(half)
    child_that_runs(monkeypatch, f"print({said!r})")
    with pytest.raises(CleaningError, match="said") as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "other"


def test_a_child_that_waits_for_its_throttle_tells_that_it_lives() -> None:
    clock, told = Clock(), list[int]()
    progress = Progress(told.append, clock_s=lambda: clock.now_s, sleep_s=clock.sleep)
    progress.add(100)
    progress.add(50)
    assert told == []
    progress.sleep(2.5)
    assert told == [150, 150]
    assert sum(clock.slept_s) == 2.5
    clock.now_s += 0.5
    progress.add(7)
    assert told == [150, 150, 157]


def test_a_bug_in_a_cleaning_is_a_failed_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> CleaningReport:
        raise ZeroDivisionError("a bug")

    half = MemoryBackend()
    _, job = filled(half)
    monkeypatch.setattr(rewrite, "clean", broken)
    with pytest.raises(CleaningError, match="ZeroDivisionError: a bug") as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "other"


def test_a_child_cleans_as_this_process_does(tmp_path: Path) -> None:
    half, before = open_file_half(tmp_path), children()
    _, job = filled(half)
    memory_log, memory_job = filled(MemoryBackend())
    report = asyncio.run(run_cleaning(half, job))
    assert report == asyncio.run(run_cleaning(memory_log.half, memory_job))
    for group in report.groups:
        for suffix in (".log", ".index", ".timeindex"):
            path = group.segment.path(PARTITION_DIR, suffix)
            assert half.read(path) == memory_log.half.read(path)
    assert (report.stats.records_read, report.stats.records_kept) == (900, 10)
    assert children() == before


@contextmanager
def slow_cleaning(half: FileHalf) -> Iterator[CleaningJob]:
    """A job that takes minutes, as its throttle is tight."""
    _, job = filled(half, count=1000)
    yield replace(job, io_max_bytes_per_second=1024.0)


def test_a_child_that_is_killed_leaves_nothing_and_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        half, before = open_file_half(tmp_path), children()
        with slow_cleaning(half) as job:
            running = asyncio.create_task(run_cleaning(half, job))
            await until(lambda: children() > before)
            (pid,) = children() - before
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(CleaningError, match="SIGKILL") as caught:
                await running
        assert caught.value.kind == "died"
        assert cleaned_files(half) == []
        assert children() == before

    asyncio.run(test())


def test_a_cancelled_cleaning_ends_its_child(tmp_path: Path) -> None:
    async def test() -> None:
        half, before = open_file_half(tmp_path), children()
        with slow_cleaning(half) as job:
            running = asyncio.create_task(run_cleaning(half, job))
            await until(lambda: children() > before)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert cleaned_files(half) == []
        assert children() == before

    asyncio.run(test())


def test_damage_is_told_by_file_and_position(tmp_path: Path) -> None:
    half = open_file_half(tmp_path)
    log, job = filled(half)
    name = f"{PARTITION_DIR}/{log.segments[1].base_offset:020d}.log"
    data = bytearray(half.read(name))
    data[-1] ^= 1
    half.put(name, data)
    with pytest.raises(CleaningError, match=rf"{name} is corrupt at byte \d+: .*CRC") as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "corrupt"
    assert cleaned_files(half) == []


@pytest.mark.parametrize("file", ["", ".log.cleaned", ".index.cleaned", ".timeindex.cleaned"])
@pytest.mark.parametrize("operation", ["writev", "flush", "flush_folder", "open"])
def test_a_disk_that_fails_leaves_nothing_and_the_next_cleaning_works(
    operation: Operation, file: str
) -> None:
    half = MemoryBackend()
    log, job = filled(half)
    half.faults.fail_next(1, operation, under=file if operation != "flush_folder" else "")
    with pytest.raises(CleaningError) as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "storage"
    assert cleaned_files(half) == []
    before = visible(log.batches())
    assert log.clean(job).stats.records_kept == 10
    assert visible(log.batches()) == before


def test_a_full_disk_leaves_nothing_and_the_next_cleaning_works() -> None:
    half = MemoryBackend()
    log, job = filled(half)
    half.faults.capacity_bytes = sum(segment.size for segment in log.segments)
    with pytest.raises(CleaningError, match="full") as caught:
        asyncio.run(run_cleaning(half, job))
    assert caught.value.kind == "storage"
    assert cleaned_files(half) == []
    half.faults.clear()
    assert log.clean(job).stats.records_kept == 10


@dataclass
class Clock:
    now_s: float = 100.0
    slept_s: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def test_the_throttle_keeps_the_mean_rate() -> None:
    clock = Clock()
    throttle = RateThrottle(100.0, clock_s=lambda: clock.now_s, sleep_s=clock.sleep)
    throttle(100)
    assert clock.slept_s == [1.0]
    clock.now_s += 2.0
    throttle(150)
    assert clock.slept_s == [1.0]
    throttle(100)
    assert clock.slept_s == [1.0, 0.5]


def test_the_throttle_catches_up_no_more_than_the_burst() -> None:
    clock = Clock()
    throttle = RateThrottle(100.0, burst_s=3.0, clock_s=lambda: clock.now_s, sleep_s=clock.sleep)
    throttle(100)
    clock.now_s += 60.0
    throttle(100)
    assert clock.slept_s == [1.0]
    throttle(300)
    assert clock.slept_s == [1.0]
    throttle(50)
    assert clock.slept_s == [1.0, 0.5]


def test_a_cleaning_accounts_for_what_it_reads_and_writes() -> None:
    log, job = filled(MemoryBackend())
    sizes: list[int] = []
    report = clean(log.half, job, sizes.append)
    assert sum(sizes) == report.stats.bytes_read + report.stats.bytes_written
    assert report.stats.bytes_written == sum(group.segment.size for group in report.groups)
    # Both walks.
    assert report.stats.bytes_read >= 2 * sum(segment.size for segment in log.segments)
