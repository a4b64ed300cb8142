"""Lookups by time against a plain list of all records."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.executors.log.log import Log
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import OffsetTimestamp, TimestampType
from tests.unit.executors.log.log_fixtures import (
    Desk,
    batch,
    first_since,
    headers_of,
    put,
    with_largest,
)

BATCHES = st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=4), min_size=1, max_size=40)


def first_at_or_after(
    records: list[tuple[int, int]], timestamp: int, start: int
) -> tuple[int, int] | None:
    return next(((o, t) for o, t in records if o >= start and t >= timestamp), None)


def first_largest(records: list[tuple[int, int]], start: int) -> tuple[int, int] | None:
    there = [(o, t) for o, t in records if o >= start and t >= 0]
    return max(there, key=lambda item: (item[1], -item[0]), default=None)


def as_pair(found: OffsetTimestamp | None) -> tuple[int, int] | None:
    return None if found is None else (found.offset, found.timestamp)


def check(log: Log, records: list[tuple[int, int]]) -> None:
    start = log.log_start_offset
    for timestamp in range(62):
        expected = first_at_or_after(records, timestamp, start)
        assert as_pair(first_since(log, timestamp)) == expected, timestamp
    assert as_pair(with_largest(log)) == first_largest(records, start)


@settings(deadline=None, max_examples=80)
@given(
    batches=BATCHES,
    interval=st.sampled_from([0, 150, 400, 10**6]),
    segment_bytes=st.sampled_from([400, 1200, 10**6]),
    data=st.data(),
)
def test_lookups_are_exact_in_any_order_of_times(
    batches: list[list[int]], interval: int, segment_bytes: int, data: st.DataObject
) -> None:
    desk = Desk()
    log = desk.open(index_interval_bytes=interval, segment_bytes=segment_bytes, segment_ms=2**40)
    records: list[tuple[int, int]] = []
    for timestamps in batches:
        records += enumerate(timestamps, log.log_end_offset)
        put(log, *timestamps, size=0)
    check(log, records)
    log.check_invariants()
    log.advance_log_start(data.draw(st.integers(0, log.log_end_offset)))
    check(log, records)
    start = log.log_start_offset
    log.close(0, clean=data.draw(st.booleans()))
    clean = log.recovery_point == log.log_end_offset
    log = desk.open(clean=clean, log_start_offset=start)
    check(log, records)
    cut = data.draw(st.integers(0, log.log_end_offset))
    log.truncate_to(cut, 0)
    records = [(offset, t) for offset, t in records if offset < log.log_end_offset]
    check(log, records)
    more = data.draw(BATCHES)
    for timestamps in more:
        records += enumerate(timestamps, log.log_end_offset)
        put(log, *timestamps, size=0)
    check(log, records)
    log.check_invariants()


def test_log_append_time_gives_a_batch_one_timestamp() -> None:
    log = Desk().open()
    for timestamp in (100, 100, 200):
        data = batch(
            log.log_end_offset,
            (timestamp,) * 3,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
        )
        log.append([data], headers_of(data), timestamp)
    found = [as_pair(first_since(log, t)) for t in (0, 100, 101, 200, 201)]
    assert found == [(0, 100), (0, 100), (6, 200), (6, 200), None]
    assert as_pair(with_largest(log)) == (6, 200)
    log.advance_log_start(1)
    assert as_pair(first_since(log, 0)) == (1, 100)


def test_an_answer_names_its_leader_epoch() -> None:
    log = Desk().open()
    put(log, 10, leader_epoch=3)
    put(log, 20, leader_epoch=5)
    found = first_since(log, 15)
    assert found == OffsetTimestamp(offset=1, timestamp=20, leader_epoch=5)
    assert with_largest(log) == found
    assert first_since(log, 3) == OffsetTimestamp(offset=0, timestamp=10, leader_epoch=3)


def test_compressed_batches_are_searched_too() -> None:
    from sparklog.types import Compression
    from sparklog.wire.records.builder import Record, encode_batch

    log = Desk().open()
    for codec in Compression:
        records = [Record(value=b"x", timestamp=t) for t in (codec * 10 + 5, codec * 10)]
        data = encode_batch(records, base_offset=log.log_end_offset, compression=codec)
        log.append([data], headers_of(data), 0)
    assert [as_pair(first_since(log, t)) for t in (3, 6, 41)] == [(0, 5), (2, 15), (8, 45)]


def test_a_batch_is_read_once_however_many_of_its_records_are_ever_larger() -> None:
    backend = MemoryBackend()
    log = Desk(half=backend).open(segment_bytes=1 << 20)
    put(log, 10**6)
    put(log, *range(500), size=0)
    # The batch that the index knows as the one with the largest timestamp is hidden.
    log.advance_log_start(1)
    reads: list[str] = []
    backend.faults.slow = lambda operation, where: reads.append(operation)
    assert as_pair(with_largest(log)) == (500, 499)
    assert reads.count("read") < 10
