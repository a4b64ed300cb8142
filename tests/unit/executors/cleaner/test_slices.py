"""Slices of the dirty head, and the batches that a cleaning leaves alone or keeps on purpose."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptLogError
from sparklog.executors.cleaner.latest_offsets import LatestOffsets
from sparklog.types import Compression
from sparklog.wire.records.builder import Record
from sparklog.wire.records.control import ControlType
from tests.unit.executors.cleaner.model import PARTITION_DIR, FileLog, visible


def test_many_keys_are_cleaned_in_slices_that_fit_the_memory() -> None:
    log = FileLog()
    for number in range(4000):
        key = b"key-%06d" % (number % 3000)
        log.append([Record(key=key, value=b"%d" % number + bytes(150), timestamp=1)])
        if number % 1000 == 999:
            log.roll()
    before, ends, end = visible(log.batches()), [], 0
    while end < log.end_offset:
        job = log.job(
            first_dirty=end, group_size=2, dedupe_buffer_size=30_000, io_buffer_size=65_536
        )
        assert job is not None
        report = log.clean(job)
        # Keys, their ends and their offsets.
        assert report.stats.keys * (10 + 4 + 8) < 30_000
        end = report.clean_offset
        ends.append(end)
    assert ends == sorted(set(ends))
    assert len(ends) > 3
    assert visible(log.batches()) == before
    kept = [r for segment in log.batches() for batch in segment for r in batch.records]
    assert [r.offset for r in kept] == list(range(1000, 4000))


def test_a_second_cleaning_of_the_same_offsets_changes_nothing() -> None:
    log = FileLog()
    for number in range(60):
        value = None if number % 7 == 0 else b"v"
        log.append([Record(key=b"%d" % (number % 5), value=value)], codec=Compression.ZSTD)
        if number % 10 == 9:
            log.roll()
    job = log.job(now_ms=1, group_size=3)
    assert job is not None
    assert log.clean(job).groups
    files = [log.log_bytes(segment) for segment in log.segments]
    again = log.job(now_ms=2, group_size=1)
    assert again is not None
    assert log.clean(again).groups == ()
    assert [log.log_bytes(segment) for segment in log.segments] == files


def test_a_tombstone_goes_once_its_horizon_has_passed() -> None:
    log = FileLog()
    log.append([Record(key=b"a", value=b"1", timestamp=5)])
    log.append([Record(key=b"a", value=None, timestamp=6), Record(key=b"b", timestamp=-1)])
    log.append([Record(key=b"c", value=b"2", timestamp=7)])
    kept = []
    for now_ms in (1000, 1099, 1100):
        job = log.job(now_ms=now_ms, delete_retention_ms=100)
        assert job is not None
        log.clean(job)
        (batches,) = log.batches()
        kept.append([(r.key, r.value, r.timestamp) for batch in batches for r in batch.records])
    tombstones = [(b"a", None, 6), (b"b", None, -1)]
    assert kept == [[*tombstones, (b"c", b"2", 7)]] * 2 + [[(b"c", b"2", 7)]]


def test_the_last_marker_of_a_producer_without_data_stays_whole() -> None:
    log = FileLog()
    log.append([Record(key=b"first", value=b"of its leader epoch")])
    log.append([Record(key=b"a", value=b"1")], producer_id=1, transactional=True)
    log.end(1, ControlType.COMMIT, epoch=0)
    log.end(1, ControlType.ABORT, epoch=4)  # fences the producer
    log.append([Record(key=b"a", value=b"2")])
    log.append([Record(key=b"z", value=b"2")])
    for now_ms in (0, 1000, 2000):
        job = log.job(now_ms=now_ms, delete_retention_ms=10)
        assert job is not None
        log.clean(job)
        assert log.replayed().entries[1].producer_epoch == 4
    log.producers.expire(10**9, 0)
    for now_ms in (3000, 4000):
        job = log.job(now_ms=now_ms, delete_retention_ms=10)
        assert job is not None
        log.clean(job)
    assert log.replayed().entries == {}


def test_an_open_transaction_is_not_cut() -> None:
    log = FileLog()
    log.append([Record(key=b"a", value=b"1")])
    log.roll()
    log.append([Record(key=b"a", value=b"2")], producer_id=1, transactional=True)
    log.roll()
    log.append([Record(key=b"a", value=b"3")])
    job = log.job()
    assert job is not None
    assert job.end_offset == 1
    log.clean(job)
    assert visible(log.batches()[:1])[b"a"].value == b"1"


def test_an_aborted_transaction_that_ends_behind_the_cleaned_range_is_dropped() -> None:
    log = FileLog()
    log.append([Record(key=b"a", value=b"1")])
    log.append([Record(key=b"a", value=b"2")], producer_id=1, transactional=True)
    log.append([Record(key=b"b", value=b"3")])
    log.roll()
    log.end(1, ControlType.ABORT)
    job = log.job()
    assert job is not None
    first = replace(job, groups=(job.groups[0][:1],), end_offset=3, producers={})
    log.clean(first)
    values = [r.value for batch in log.batches()[0] for r in batch.records]
    assert values == [b"1", b"3"]
    assert [txn.producer_id for txn in log.aborted] == [1]


def test_a_log_file_that_is_cut_is_damage() -> None:
    log = FileLog()
    for number in range(50):
        log.append([Record(key=b"%d" % (number % 5), value=bytes(50))])
    job = log.job()
    assert job is not None
    name = f"{PARTITION_DIR}/{0:020d}.log"
    log.half.put(name, log.half.read(name)[:-7])
    with pytest.raises(CorruptLogError, match="cut off"):
        log.clean(job)
    assert [each for each in log.half.list(PARTITION_DIR) if each.endswith(".cleaned")] == []


@given(
    st.lists(st.sampled_from([b"", b"a", b"b", b"cc", b"ccc"]), max_size=40),
    st.integers(0, 40),
    st.integers(1, 7),
)
def test_latest_offsets_are_exact(keys: list[bytes], first: int, step: int) -> None:
    latest = LatestOffsets(first, 1)
    offsets = np.arange(len(keys), dtype=np.int64)
    for at in range(first, len(keys), step):
        part = slice(at, at + step)
        latest.add(pa.array(keys[part], pa.binary()), offsets[part])
        assert latest.is_full
    latest.finish()
    last = {key: number for number, key in enumerate(keys) if number >= first}
    assert len(latest) == len(last)
    held = latest.hold(offsets[first:])
    assert held.tolist() == [n == last[key] for n, key in enumerate(keys) if n >= first]
    superseded = latest.supersede(pa.array(keys[:first], pa.binary()))
    assert superseded.tolist() == [key in last for key in keys[:first]]
