"""The plan of a batch read: bounds resolved, ranges split, nothing lost between two of them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.dataframe.options import Bound
from sparklog.dataframe.plan import (
    OffsetRange,
    PartitionOffsets,
    check_names,
    narrow,
    resolve_end,
    resolve_start,
    split,
)
from sparklog.errors import ConfigError
from sparklog.types import OffsetSpec, TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
HELD = PartitionOffsets(earliest=10, latest=20)


def piece(partition: TopicPartition, start: int, end: int, lower: int | None = None) -> OffsetRange:
    return OffsetRange(topic_partition=partition, start=start, end=end, min_timestamp_ms=lower)


@pytest.mark.parametrize(
    ("bound", "by_time", "start"),
    [
        (Bound(special=OffsetSpec.EARLIEST), None, 10),
        (Bound(offsets={T0: 15}), None, 15),
        (Bound(offsets={T0: 20}), None, 20),
        (Bound(offsets={T0: -2}), None, 10),
        (Bound(timestamp_ms=5), 12, 12),
        (Bound(timestamp_ms=5), 3, 10),
    ],
)
def test_where_a_read_starts(bound: Bound, by_time: int | None, start: int) -> None:
    assert resolve_start(bound, T0, HELD, by_time) == start


@pytest.mark.parametrize(
    ("bound", "by_time", "end"),
    [
        (Bound(special=OffsetSpec.LATEST), None, 20),
        (Bound(offsets={T0: 15}), None, 15),
        (Bound(offsets={T0: -1}), None, 20),
        (Bound(timestamp_ms=5), 12, 12),
        (Bound(timestamp_ms=5), None, 20),
    ],
)
def test_where_a_read_ends(bound: Bound, by_time: int | None, end: int) -> None:
    assert resolve_end(bound, T0, HELD, by_time) == end


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({T0: 9}, "offset 9 of t-0 is out of range; the partition holds [10, 20)"),
        ({T0: 21}, "offset 21 of t-0 is out of range"),
        ({T1: 10}, "gives no offset for t-0"),
    ],
)
def test_an_offset_that_is_not_held_is_an_error(
    offsets: Mapping[TopicPartition, int], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_start(Bound(offsets=offsets), T0, HELD, None)
    assert message in str(caught.value)


def test_a_starting_time_that_no_record_reaches_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no record of t-0 is that new"):
        resolve_start(Bound(timestamp_ms=5), T0, HELD, None)


def test_offsets_of_partitions_that_are_not_read_are_an_error() -> None:
    with pytest.raises(ConfigError, match="names t-1, which this read does not select"):
        check_names(Bound(offsets={T0: 1, T1: 1}), [T0], "startingOffsets")


def test_a_lower_time_bound_narrows_each_range() -> None:
    ranges = [piece(T0, 0, 100), piece(T1, 0, 100), piece(TopicPartition("t", 2), 50, 100)]
    starts = {T0: 30, T1: None, TopicPartition("t", 2): 10}
    assert narrow(ranges, starts, 7) == [
        piece(T0, 30, 100, 7),
        piece(T1, 100, 100, 7),
        piece(TopicPartition("t", 2), 50, 100, 7),
    ]


def test_ranges_are_split_in_proportion() -> None:
    assert split([piece(T0, 0, 30), piece(T1, 5, 15)], 4) == [
        piece(T0, 0, 10),
        piece(T0, 10, 20),
        piece(T0, 20, 30),
        piece(T1, 5, 15),
    ]


def test_without_a_wish_empty_ranges_alone_are_dropped() -> None:
    assert split([piece(T0, 3, 3), piece(T1, 0, 9)], None) == [piece(T1, 0, 9)]


@given(
    sizes=st.lists(st.integers(0, 1000), max_size=8),
    wanted=st.one_of(st.none(), st.integers(1, 50)),
)
def test_a_split_covers_every_offset_once(sizes: list[int], wanted: int | None) -> None:
    ranges = [piece(TopicPartition("t", i), i, i + size) for i, size in enumerate(sizes)]
    pieces = split(ranges, wanted)
    covered = sorted((p.topic_partition, o) for p in pieces for o in range(p.start, p.end))
    assert covered == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]
    assert all(p.size > 0 for p in pieces)
    if wanted and sum(sizes) >= wanted:
        assert len(pieces) >= min(wanted, sum(sizes))
