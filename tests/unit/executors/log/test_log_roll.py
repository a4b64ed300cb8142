from dataclasses import dataclass, replace

import pytest

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.roll import (
    RollReason,
    is_roll_due,
    roll_jitter_ms,
    roll_reason,
    segment_ms_max,
)
from tests.unit.executors.log.log_fixtures import (
    SMALL,
    Desk,
    batch,
    fill,
    first_since,
    headers_of,
    put,
    read_all,
)

DAY_MS = 86_400_000


@dataclass
class FakeSegment:
    base_offset: int = 0
    size: int = 100
    first_timestamp: int = 1000
    created_ms: int = 0
    first_append_ms: int = -1
    index_full: bool = False


def reason(
    segment: FakeSegment,
    *,
    size: int = 100,
    last_offset: int = 10,
    timestamp: int = 1000,
    now_ms: int = 0,
    jitter_ms: int = 0,
) -> RollReason | None:
    return roll_reason(
        segment,
        append_size=size,
        append_last_offset=last_offset,
        append_max_timestamp=timestamp,
        config=TopicConfig(segment_bytes=1000, segment_ms=DAY_MS),
        jitter_ms=jitter_ms,
        now_ms=now_ms,
    )


def test_a_segment_that_fits_is_not_rolled() -> None:
    assert reason(FakeSegment(size=900)) is None


def test_a_record_that_must_be_compacted_does_not_stay_in_the_active_segment() -> None:
    config = TopicConfig(segment_ms=9, max_compaction_lag_ms=5)
    assert segment_ms_max(config) == 9
    assert segment_ms_max(replace(config, cleanup_policy=("compact", "delete"))) == 5


def test_size_counts_what_is_to_be_appended() -> None:
    assert reason(FakeSegment(size=901)) is RollReason.SIZE


def test_an_empty_segment_takes_anything_but_a_distant_offset() -> None:
    empty = FakeSegment(size=0, index_full=True, first_timestamp=-1)
    assert reason(empty, size=1000, now_ms=DAY_MS * 9) is None
    assert reason(empty, last_offset=2**31 - 1) is None
    assert reason(empty, last_offset=2**31) is RollReason.OFFSET_OVERFLOW


def test_a_full_index_rolls() -> None:
    assert reason(FakeSegment(index_full=True)) is RollReason.INDEX_FULL


def test_time_runs_by_the_records() -> None:
    assert reason(FakeSegment(), timestamp=1000 + DAY_MS, now_ms=DAY_MS * 9) is None
    assert reason(FakeSegment(), timestamp=1001 + DAY_MS) is RollReason.TIME
    assert reason(FakeSegment(), timestamp=1000 + DAY_MS, jitter_ms=1) is RollReason.TIME


def test_without_timestamps_time_runs_by_the_clock() -> None:
    unstamped = FakeSegment(first_timestamp=-1, created_ms=50)
    assert reason(unstamped, timestamp=-1, now_ms=50 + DAY_MS) is None
    assert reason(unstamped, timestamp=-1, now_ms=51 + DAY_MS) is RollReason.TIME


@pytest.mark.parametrize(
    ("segment", "due_ms"),
    [
        (FakeSegment(first_timestamp=1000), DAY_MS + 1001),
        (FakeSegment(first_timestamp=1000, first_append_ms=990), DAY_MS + 1001),
        (FakeSegment(first_timestamp=1000, first_append_ms=9 * DAY_MS), 10 * DAY_MS + 1),
        (FakeSegment(first_timestamp=-1, created_ms=50, first_append_ms=60), DAY_MS + 61),
        (FakeSegment(size=1001, first_append_ms=0), 0),
    ],
)
def test_without_an_append_old_records_count_from_their_append(
    segment: FakeSegment, due_ms: int
) -> None:
    config = TopicConfig(segment_bytes=1000, segment_ms=DAY_MS)
    assert is_roll_due(segment, config=config, jitter_ms=0, now_ms=due_ms)
    assert is_roll_due(segment, config=config, jitter_ms=7, now_ms=max(due_ms - 7, 0))
    if segment.size <= 1000:
        assert not is_roll_due(segment, config=config, jitter_ms=0, now_ms=due_ms - 1)
        assert not is_roll_due(segment, config=config, jitter_ms=7, now_ms=due_ms - 8)


def test_jitter_spreads_segments_and_stays_the_same() -> None:
    config = TopicConfig(segment_ms=DAY_MS, segment_jitter_ms=1000)
    jitters = [roll_jitter_ms(f"t-{n}", 0, config) for n in range(50)]
    assert jitters == [roll_jitter_ms(f"t-{n}", 0, config) for n in range(50)]
    assert len(set(jitters)) > 25
    assert all(0 <= jitter < 1000 for jitter in jitters)
    assert roll_jitter_ms("t-0", 0, TopicConfig()) == 0


def test_a_log_rolls_by_size() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 60, size=50)
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) > 3
    assert all(SMALL.segment_bytes - 200 < size <= SMALL.segment_bytes for size in sizes[:-1])
    assert [record.offset for record in read_all(log)] == list(range(60))
    log.check_invariants()


def test_a_log_rolls_when_its_records_span_segment_ms() -> None:
    log = Desk().open(segment_ms=1000)
    for timestamp in (5000, 5900, 6000, 6001, 100, 7001, 7002):
        put(log, timestamp, now_ms=10**9)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_a_log_rolls_when_its_index_is_full() -> None:
    log = Desk().open(segment_bytes=10**6, index_interval_bytes=0, segment_index_bytes=64)
    fill(log, 30)
    # Eight offset entries fit 64 bytes, but only five time entries, one kept for the sealing.
    assert [segment.time_index.entries for segment in log.segments[:-1]] == [4] * 5
    log.check_invariants()
    assert [record.offset for record in read_all(log)] == list(range(30))


def test_a_log_rolls_when_an_offset_is_too_far_from_the_base() -> None:
    desk = Desk()
    log = desk.open()
    put(log)
    far = 2**31 + 5
    data = batch(far, (7, 8))
    info = log.append([data], headers_of(data), 0)
    assert (info.segment_base_offset, info.position, info.rolled) == (far, 0, True)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert [record.offset for record in read_all(log)] == [0, far, far + 1]
    # A gap is no place to read from, what follows it is.
    got = log.read(1, 1000, end_offset=log.log_end_offset)
    assert got.first_offset == far
    assert first_since(log, 8) is not None
    log.close(0)
    log = desk.open(clean=True)
    assert [record.offset for record in read_all(log)] == [0, far, far + 1]


def test_an_empty_segment_gives_way_to_a_distant_offset() -> None:
    desk = Desk()
    log = desk.open()
    big = 2**62
    data = batch(big)
    log.append([data], headers_of(data), 0)
    assert desk.names(".log") == [f"{big:020d}.log"]
    assert log.log_end_offset == big + 1
    assert [record.offset for record in read_all(log, big)] == [big]


def test_rolling_by_hand_seals_and_an_empty_segment_stays() -> None:
    desk = Desk()
    log = desk.open()
    log.roll(0)
    assert desk.names(".log") == ["00000000000000000000.log"]
    put(log, 5)
    log.roll(0)
    log.roll(0)
    assert desk.names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.index",
        "00000000000000000001.log",
        "00000000000000000001.snapshot",
        "00000000000000000001.timeindex",
    ]
    assert desk.half.size(desk.path("00000000000000000000.index")) == 0
    assert desk.half.size(desk.path("00000000000000000000.timeindex")) == 12


def test_more_than_a_segment_at_once_is_refused() -> None:
    log = Desk().open()
    first, second = batch(0, size=SMALL.segment_bytes // 2), batch(1, size=SMALL.segment_bytes // 2)
    with pytest.raises(KafkaError) as refusal:
        log.append([first, second], headers_of(first + second), 0)
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_batch_that_is_larger_than_a_segment_has_one_for_itself() -> None:
    log = Desk().open()
    put(log)
    put(log, size=SMALL.segment_bytes)
    put(log)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_new_settings_count_at_once() -> None:
    log = Desk().open()
    fill(log, 3)
    log.reconfigure(replace(SMALL, segment_bytes=300))
    fill(log, 3)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
