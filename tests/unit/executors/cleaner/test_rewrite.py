"""The rewrite against the model: keys, tombstones, transactions, codecs, horizons, many passes."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import StorageError
from sparklog.executors.cleaner.job import CleaningJob, CleaningReport
from sparklog.executors.cleaner.rewrite import clean
from sparklog.executors.log import remove_cleaned
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import MAX_INT64, Compression, TimestampType
from sparklog.wire.records.builder import Record
from sparklog.wire.records.control import ControlType
from tests.unit.executors.cleaner.model import (
    PARTITION_DIR,
    FileLog,
    ModelBatch,
    model_clean,
    visible,
)

records = st.builds(
    Record,
    key=st.sampled_from([b"a", b"b", b"c", b"", b"k" * 40, None]),
    value=st.one_of(st.none(), st.binary(max_size=30)),
    timestamp=st.integers(-1, 2_000_000_000_000),
    headers=st.sampled_from([(), (("h", None),), (("h", b"x" * 200), ("é", b""))]),
)


@dataclass(frozen=True)
class Append:
    records: list[Record]
    producer_id: int
    transactional: bool
    codec: Compression
    append_time: bool


@dataclass(frozen=True)
class End:
    producer_id: int
    kind: ControlType


@dataclass(frozen=True)
class Clean:
    elapsed_ms: int
    group_size: int
    dedupe_buffer_size: int
    expires_below: int = MAX_INT64


appends = st.builds(
    Append,
    st.lists(records, min_size=1, max_size=6),
    st.sampled_from([-1, -1, 1, 2, 3]),
    st.booleans(),
    st.sampled_from(Compression),
    st.booleans(),
)
ends = st.builds(End, st.sampled_from([1, 2, 3]), st.sampled_from(ControlType))
cleans = st.builds(
    Clean,
    st.sampled_from([0, 60, 1000]),
    st.integers(1, 4),
    st.sampled_from([1, 300, 10**6]),
    st.sampled_from([MAX_INT64, MAX_INT64, 0, 7]),
)
events = st.lists(
    st.one_of(appends, appends, ends, st.sampled_from(["roll", "new epoch"]), cleans),
    min_size=1,
    max_size=40,
)


class Run:
    """Applies events to a log, and compares each cleaning with the model."""

    def __init__(self) -> None:
        self.log = FileLog()
        self.now_ms = 1_000
        self.clean_offset = 0
        self.cleanings = 0
        self.met: Counter[str] = Counter()

    def apply(self, event: object) -> None:
        log = self.log
        if isinstance(event, Append):
            in_transaction = event.producer_id in log.producers.transactions.ongoing.values()
            log.append(
                event.records,
                producer_id=event.producer_id,
                transactional=event.producer_id >= 0 and (event.transactional or in_transaction),
                codec=event.codec,
                timestamp_type=TimestampType.LOG_APPEND_TIME
                if event.append_time
                else TimestampType.CREATE_TIME,
            )
        elif isinstance(event, End):
            log.end(event.producer_id, event.kind, self.now_ms)
        elif isinstance(event, Clean):
            self.clean(event)
        elif event == "new epoch":
            log.leader_epoch += 1
        else:
            log.roll()

    def clean(self, event: Clean) -> None:
        self.now_ms += event.elapsed_ms
        job = self.log.job(
            first_dirty=self.clean_offset,
            now_ms=self.now_ms,
            group_size=event.group_size,
            dedupe_buffer_size=event.dedupe_buffer_size,
        )
        if job is None:
            return
        job = replace(job, expires_below=event.expires_below)
        before, producers = self.log.batches(), self.log.replayed()
        report = self.log.clean(job)
        self.check(job, report, before)
        after = self.log.replayed()
        for producer_id in self.log.producers.entries:  # others have expired
            entry = producers.entries.get(producer_id)
            if entry is None:
                continue
            assert after.entries[producer_id].last_sequence == entry.last_sequence
            assert after.entries[producer_id].producer_epoch == entry.producer_epoch
        still_open = [set(each.transactions.ongoing.values()) for each in (producers, after)]
        assert still_open[0] == still_open[1]
        self.clean_offset = report.clean_offset
        self.cleanings += 1

    def check(
        self, job: CleaningJob, report: CleaningReport, before: list[list[ModelBatch]]
    ) -> None:
        assert job.first_dirty < report.clean_offset <= job.end_offset
        found = self.log.batches()
        assert found == model_clean(before, job, report.clean_offset)
        for first, second in zip(self.log.segments, self.log.segments[1:], strict=False):
            assert first.next_offset == second.base_offset
        gone = visible(before).keys() - visible(found).keys()
        assert all(visible(before)[key].value is None for key in gone)
        assert all(visible(before)[key] == record for key, record in visible(found).items())
        self.count(job, report, before, found)

    def count(
        self,
        job: CleaningJob,
        report: CleaningReport,
        before: list[list[ModelBatch]],
        after: list[list[ModelBatch]],
    ) -> None:
        """Count what the cleaning has met, so that a test can tell that nothing is missing."""
        was, now = list(chain.from_iterable(before)), list(chain.from_iterable(after))
        kept = {batch.base_offset for batch in now}
        gone = [batch for batch in was if batch.base_offset not in kept]
        expired = [b for b in was if b.horizon is not None and b.horizon <= job.now_ms]
        held_back = [b for b in expired if b.last_offset >= job.expires_below]
        met = {
            "slices that end early": report.clean_offset < job.end_offset,
            "emptied batches": any(not batch.records for batch in now),
            "delete horizons": any(batch.horizon is not None for batch in now),
            "tombstones that go": any(r.value is None for b in expired for r in b.records),
            "tombstones held back": any(r.value is None for b in held_back for r in b.records),
            "markers that go": any(batch.control for batch in gone),
            "aborted data that goes": any(b.transactional and not b.control for b in gone),
            "aborted transactions that stay": bool(self.log.aborted),
            "segments that are joined": any(len(group.replaced) > 1 for group in report.groups),
        }
        self.met.update(name for name, is_met in met.items() if is_met)


@settings(deadline=None)
@given(events)
def test_the_rewrite_does_what_the_model_does(sequence: list[object]) -> None:
    run = Run()
    for event in sequence:
        run.apply(event)
    run.clean(Clean(60, 2, 10**6))
    run.clean(Clean(60, 2, 10**6))


def life(seed: int) -> Run:
    """Rounds of appends, transactions and rolls, each round followed by a cleaning."""
    random, run = Random(seed), Run()
    for _ in range(random.randint(2, 5)):
        for _ in range(random.randint(4, 14)):
            producer_id = random.choice((-1, -1, 1, 2, 3))
            batch = [
                Record(
                    key=random.choice((b"a", b"b", b"c", b"d" * 30)),
                    value=random.choice((None, b"v" * random.randint(0, 40))),
                    timestamp=random.randint(0, 10**12),
                )
                for _ in range(random.randint(1, 4))
            ]
            codec = random.choice(list(Compression))
            transactional = producer_id >= 2
            run.apply(Append(batch, producer_id, transactional, codec, random.random() < 0.2))
            if random.random() < 0.4:
                run.apply("roll")
            if random.random() < 0.1:
                run.apply("new epoch")
            if random.random() < 0.4:
                ongoing = list(run.log.producers.transactions.ongoing.values())
                if ongoing:
                    run.apply(End(random.choice(ongoing), random.choice(list(ControlType))))
        if random.random() < 0.2:
            run.log.producers.expire(1, 0)
        # Some slices end where a few keys fill the map.
        memory, below = random.choice((1, 10**6)), random.choice((MAX_INT64, MAX_INT64, 0, 20))
        run.apply(Clean(random.choice((0, 50, 150)), random.randint(1, 4), memory, below))
    return run


@pytest.mark.parametrize("seed", range(60))
def test_long_lives_of_logs_do_what_the_model_does(seed: int) -> None:
    life(seed)


def test_the_long_lives_meet_what_they_are_made_for() -> None:
    """Otherwise the comparison with the model would prove less than it seems to."""
    met = Counter[str]()
    for seed in range(60):
        run = life(seed)
        met["cleanings"] += run.cleanings
        met.update(run.met)
    assert set(met) == {
        "cleanings",
        "slices that end early",
        "emptied batches",
        "delete horizons",
        "tombstones that go",
        "tombstones held back",
        "markers that go",
        "aborted data that goes",
        "aborted transactions that stay",
        "segments that are joined",
    }
    assert min(met.values()) >= 10, met


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_directory_that_is_renamed_during_a_rewrite_is_not_made_again(
    kind: str, tmp_path: Path
) -> None:
    half: FileHalf = MemoryBackend() if kind == "memory" else LocalBackend(tmp_path)
    log = FileLog(half)
    for number in range(20):
        log.append([Record(key=b"k", value=b"%d" % number)])
    log.roll()
    log.append([Record(key=b"k", value=b"last")])
    log.roll()
    job = log.job(now_ms=1)
    assert job is not None
    sizes: list[int] = []
    clean(half, job, sizes.append)
    remove_cleaned(half, PARTITION_DIR)
    before, calls = half.list(PARTITION_DIR), count(1)

    def rename_at_last(size: int) -> None:
        if next(calls) == len(sizes):
            half.rename_folder(PARTITION_DIR, "gone-delete")

    with pytest.raises(StorageError):
        clean(half, job, rename_at_last)
    assert not half.is_folder(PARTITION_DIR)
    assert [name for name in half.list("gone-delete") if not name.endswith(".cleaned")] == before
