"""What of a log can be cleaned, which log is cleaned next, and which segments are joined."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.executors.cleaner.choice import (
    FAILURES_MAX,
    RETRY_MS,
    RETRY_MS_MAX,
    FailedCleanings,
    LogToClean,
    filthiest,
)
from sparklog.executors.cleaner.plan import (
    GROUP_SEGMENTS_MAX,
    CleanableRange,
    cleanable_range,
    delete_horizon_ms,
    group_segments,
)
from sparklog.types import MAX_INT32, MAX_INT64, TopicPartition

DAY_MS = 86_400_000
TP = TopicPartition("t", 0)


@dataclass
class Stamp:
    timestamp: int = 0


@dataclass
class Index:
    size: int = 0


@dataclass
class FakeSegment:
    base_offset: int
    next_offset: int
    size: int = 100
    largest: Stamp = field(default_factory=Stamp)
    first_timestamp: int = 0
    offset_index: Index = field(default_factory=Index)
    time_index: Index = field(default_factory=Index)
    last_append_ms: int = 0

    @property
    def age_timestamp(self) -> int:
        return self.largest.timestamp if self.largest.timestamp >= 0 else self.last_append_ms


def four(*stamps: int) -> list[FakeSegment]:
    """Three sealed segments of ten offsets and an active one; ``stamps`` are their times."""
    segments = [FakeSegment(base, base + 10) for base in (0, 10, 20, 30)]
    for segment, stamp in zip(segments, stamps, strict=False):
        segment.largest = Stamp(stamp)
        segment.first_timestamp = stamp
    return segments


def found(
    segments: list[FakeSegment],
    *,
    clean_offset: int | None = None,
    log_start_offset: int = 0,
    stable_offset: int = 40,
    now_ms: int = DAY_MS,
    **settings: int,
) -> CleanableRange:
    return cleanable_range(
        segments,
        config=TopicConfig(cleanup_policy=("compact",), **settings),  # type: ignore[arg-type]
        clean_offset=clean_offset,
        log_start_offset=log_start_offset,
        stable_offset=stable_offset,
        now_ms=now_ms,
    )


def test_a_log_that_was_never_cleaned_is_dirty_up_to_its_active_segment() -> None:
    assert found(four()) == CleanableRange(
        first_dirty=0, end=30, clean_bytes=0, cleanable_bytes=300
    )


def test_what_the_checkpoint_names_is_clean() -> None:
    assert found(four(), clean_offset=20) == CleanableRange(
        first_dirty=20, end=30, clean_bytes=200, cleanable_bytes=100
    )


def test_a_segment_that_was_cleaned_in_part_is_dirty() -> None:
    assert found(four(), clean_offset=15) == CleanableRange(
        first_dirty=15, end=30, clean_bytes=100, cleanable_bytes=200
    )


def test_a_checkpoint_outside_of_the_log_is_not_believed() -> None:
    for wrong in (3, 41):
        assert found(four(), clean_offset=wrong, log_start_offset=5).first_dirty == 5


def test_nothing_is_cleaned_that_is_not_stable() -> None:
    ends = [found(four(), stable_offset=at).end for at in (9, 10, 29, 30)]
    assert ends == [0, 10, 20, 30]
    assert found(four(), stable_offset=9).cleanable_bytes == 0


def test_young_records_and_all_behind_them_wait() -> None:
    segments = four(DAY_MS - 60, DAY_MS - 49, DAY_MS - 90)
    assert found(segments, min_compaction_lag_ms=50).end == 10
    assert found(segments, min_compaction_lag_ms=49).end == 30


def test_records_without_timestamps_are_young_since_their_append() -> None:
    segments = four(-1, -1, -1)
    for segment in segments:
        segment.last_append_ms = DAY_MS - 50
    assert found(segments, min_compaction_lag_ms=49).end == 30
    assert found(segments, min_compaction_lag_ms=51).end == 0


def test_the_dirty_ratio_must_exceed_its_limit() -> None:
    config = TopicConfig(min_cleanable_dirty_ratio=0.5)
    half = CleanableRange(first_dirty=0, end=1, clean_bytes=100, cleanable_bytes=100)
    more = CleanableRange(first_dirty=0, end=1, clean_bytes=99, cleanable_bytes=100)
    assert (half.is_due(config), more.is_due(config)) == (False, True)
    nothing = CleanableRange(first_dirty=0, end=0, clean_bytes=0, cleanable_bytes=0, overdue_ms=9)
    assert not nothing.is_due(config)


def test_an_old_dirty_record_makes_a_log_due_whatever_its_ratio() -> None:
    segments = four(10, 500, 400)
    late = found(segments, clean_offset=20, now_ms=1000, max_compaction_lag_ms=599)
    assert late.overdue_ms == 1
    assert late.is_due(TopicConfig(min_cleanable_dirty_ratio=1.0))
    assert found(segments, clean_offset=20, now_ms=1000, max_compaction_lag_ms=600).overdue_ms == 0


def test_the_filthiest_log_comes_first() -> None:
    def log(name: str, clean: int, dirty: int, overdue_ms: int = 0) -> LogToClean[str]:
        found = CleanableRange(
            first_dirty=0, end=1, clean_bytes=clean, cleanable_bytes=dirty, overdue_ms=overdue_ms
        )
        return LogToClean(log=name, dirty=found)

    logs = [log("a", 100, 50), log("b", 10, 50), log("c", 10, 50, 7), log("d", 1000, 500)]
    assert filthiest(logs) is logs[2]
    assert filthiest([]) is None


def test_segments_are_joined_up_to_the_limits_of_a_segment() -> None:
    segments = [
        FakeSegment(n * 10, n * 10 + 10, size) for n, size in enumerate((30, 40, 30, 1, 99))
    ]

    def bases(**settings: int) -> list[list[int]]:
        config = TopicConfig(**settings)  # type: ignore[arg-type]
        groups = group_segments(segments, config=config, end_offset=45)
        return [[segment.base_offset for segment in group] for group in groups]

    assert bases() == [[0, 10, 20, 30, 40]]
    assert bases(segment_bytes=100) == [[0, 10, 20], [30, 40]]
    assert bases(segment_bytes=29) == [[0], [10], [20], [30], [40]]
    segments[1].time_index.size = segments[0].offset_index.size = 16
    segments[2].time_index.size = 16
    assert bases(segment_index_bytes=24) == [[0, 10], [20, 30, 40]]
    assert len(group_segments(segments, config=TopicConfig(), end_offset=30)[0]) == 3


def test_a_group_has_no_more_segments_than_one_turn_can_rename() -> None:
    segments = [FakeSegment(n, n + 1, 1) for n in range(3 * GROUP_SEGMENTS_MAX + 1)]
    groups = group_segments(segments, config=TopicConfig(), end_offset=len(segments))
    assert [len(group) for group in groups] == [GROUP_SEGMENTS_MAX] * 3 + [1]


def test_offsets_of_a_joined_segment_stay_within_31_bits() -> None:
    segments = [
        FakeSegment(0, 10),
        FakeSegment(10, MAX_INT32 + 1),
        FakeSegment(MAX_INT32 + 1, 2**32),
    ]
    groups = group_segments(segments, config=TopicConfig(), end_offset=2**32)
    assert [len(group) for group in groups] == [2, 1]


@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=12),
    limit=st.integers(14, 400),
    end=st.integers(0, 140),
)
def test_groups_are_the_segments_in_order(sizes: list[int], limit: int, end: int) -> None:
    segments = [FakeSegment(n * 10, n * 10 + 10, size) for n, size in enumerate(sizes)]
    groups = group_segments(segments, config=TopicConfig(segment_bytes=limit), end_offset=end)
    joined = [segment for group in groups for segment in group]
    assert joined == [segment for segment in segments if segment.base_offset < end]
    for group in groups:
        assert len(group) == 1 or sum(segment.size for segment in group) <= limit


def test_a_log_whose_cleanings_fail_waits_ever_longer_and_is_set_aside() -> None:
    failures = FailedCleanings[TopicPartition]()
    now_ms, pauses = 0, []
    for _ in range(12):
        failure = failures.failed(TP, "disk full", now_ms)
        assert failure.is_set_aside == (failure.times >= FAILURES_MAX)
        assert not failures.allow(TP, failure.retry_at_ms - 1)
        assert failures.allow(TP, failure.retry_at_ms)
        pauses.append(failure.retry_at_ms - now_ms)
        now_ms = failure.retry_at_ms
    assert pauses[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert pauses[-1] == RETRY_MS_MAX
    assert list(failures.set_aside) == [TP]
    failures.succeeded(TP)
    assert failures.set_aside == {}
    assert failures.allow(TP, 0)


def test_a_log_that_is_gone_is_forgotten() -> None:
    failures = FailedCleanings[TopicPartition]()
    failures.failed(TP, "corrupt", 0)
    failures.keep_only([TP])
    assert not failures.allow(TP, 0)
    failures.keep_only([])
    assert failures.allow(TP, 0)


def test_tombstones_are_kept_for_ever_if_asked() -> None:
    assert delete_horizon_ms(TopicConfig(delete_retention_ms=5), 7) == 12
    assert delete_horizon_ms(TopicConfig(delete_retention_ms=MAX_INT64), 7) == MAX_INT64
