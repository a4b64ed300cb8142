"""The plan of a batch read: bounds resolved, ranges split, nothing lost between two of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.dataframe.options.options import Bound, ReadOptions
from sparklog.dataframe.read.plan import (
    FoundByTime,
    OffsetRange,
    PartitionOffsets,
    check_names,
    resolve,
    split,
)
from sparklog.errors import ConfigError, DataLossError
from sparklog.types import Endpoint, OffsetSpec, TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
HELD = PartitionOffsets(earliest=10, latest=20)
EARLIEST, LATEST = Bound(special=OffsetSpec.EARLIEST), Bound(special=OffsetSpec.LATEST)
AT_5 = Bound(timestamp_ms=5)


def piece(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic_partition=partition, start=start, end=end)


def resolved(
    starting: Bound = EARLIEST,
    ending: Bound = LATEST,
    *,
    start: int | None = None,
    end: int | None = None,
    unmatched_starts_latest: bool = False,
    fail_on_data_loss: bool = True,
) -> tuple[int, int]:
    options = ReadOptions(
        bootstrap=(Endpoint("h", 1),),
        topics=("t",),
        starting=starting,
        ending=ending,
        unmatched_starts_latest=unmatched_starts_latest,
        fail_on_data_loss=fail_on_data_loss,
    )
    found = resolve(options, T0, HELD, FoundByTime(start=start, end=end))
    return found.start, found.end


@pytest.mark.parametrize(
    ("bound", "by_time", "start"),
    [
        (EARLIEST, None, 10),
        (Bound(offsets={T0: 15}), None, 15),
        (Bound(offsets={T0: 20}), None, 20),
        (Bound(offsets={T0: -2}), None, 10),
        (AT_5, 12, 12),
        (AT_5, 3, 10),
        (AT_5, 21, 20),  # of a transaction that was committed after the end was asked for
        (Bound(timestamps={T0: 5, T1: 7}), 12, 12),
    ],
)
def test_where_a_read_starts(bound: Bound, by_time: int | None, start: int) -> None:
    assert resolved(bound, start=by_time) == (start, 20)


@pytest.mark.parametrize(
    ("bound", "by_time", "end"),
    [
        (LATEST, None, 20),
        (Bound(offsets={T0: 15}), None, 15),
        (Bound(offsets={T0: -1}), None, 20),
        (AT_5, 12, 12),
        (AT_5, None, 20),
        (Bound(timestamps={T0: 5}), 12, 12),
    ],
)
def test_where_a_read_ends(bound: Bound, by_time: int | None, end: int) -> None:
    assert resolved(ending=bound, end=by_time) == (10, end)


@pytest.mark.parametrize(
    ("starting", "ending", "message"),
    [
        (EARLIEST, Bound(offsets={T0: 21}), "endingOffsets: offset 21 of t-0 is out of range"),
        (Bound(offsets={T0: 21}), LATEST, "startingOffsets: offset 21 of t-0 is out of range"),
        (
            Bound(offsets={T0: 15}),
            Bound(offsets={T0: 14}),
            "t-0 would be read from offset 15 to 14: startingOffsets lies behind endingOffsets",
        ),
        (EARLIEST, Bound(offsets={T0: 9}), "read from offset 10 to 9"),
    ],
)
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_bounds_that_a_partition_cannot_meet_are_an_error(
    starting: Bound, ending: Bound, message: str, fail_on_data_loss: bool
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(starting, ending, fail_on_data_loss=fail_on_data_loss)
    assert message in str(caught.value)


def test_records_below_the_log_start_are_lost() -> None:
    below = Bound(offsets={T0: 9})
    with pytest.raises(DataLossError, match=r"offset 9 of t-0 .* the partition holds \[10, 20\)"):
        resolved(below)
    assert resolved(below, fail_on_data_loss=False) == (10, 20)
    all_below = Bound(offsets={T0: 3}), Bound(offsets={T0: 9})
    assert resolved(*all_below, fail_on_data_loss=False) == (10, 10)


def test_a_starting_time_that_no_record_reaches_is_an_error_or_means_the_end() -> None:
    with pytest.raises(ConfigError, match="startingTimestamp 5: no record of t-0 is that new"):
        resolved(AT_5)
    assert resolved(AT_5, unmatched_starts_latest=True) == (20, 20)


def test_a_starting_time_behind_the_ending_time_is_an_error() -> None:
    with pytest.raises(ConfigError, match="startingTimestamp lies behind endingTimestamp"):
        resolved(AT_5, AT_5, start=15, end=12)


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (Bound(offsets={T0: 1, T1: 1}), "startingOffsets names t-1, which this read does not"),
        (Bound(offsets={}), "startingOffsets gives nothing for t-0; it must name every partition"),
        (Bound(timestamps={T1: 1}), "startingOffsetsByTimestamp names t-1"),
    ],
)
def test_what_is_said_by_partition_is_said_of_exactly_those_that_are_read(
    bound: Bound, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names(bound, "starting", [T0])
    assert message in str(caught.value)
    check_names(Bound(offsets={T0: 1}), "starting", [T0])
    check_names(EARLIEST, "starting", [T0])


def test_ranges_are_split_in_proportion() -> None:
    assert split([piece(T0, 0, 30), piece(T1, 5, 15)], 4) == [
        piece(T0, 0, 10),
        piece(T0, 10, 20),
        piece(T0, 20, 30),
        piece(T1, 5, 15),
    ]


def test_without_a_wish_empty_ranges_alone_are_dropped() -> None:
    assert split([piece(T0, 3, 3), piece(T1, 0, 9)], None) == [piece(T1, 0, 9)]


def test_pieces_hold_no_more_offsets_than_wanted() -> None:
    assert split([piece(T0, 0, 7), piece(T1, 5, 8)], None, 3) == [
        piece(T0, 0, 2),
        piece(T0, 2, 4),
        piece(T0, 4, 7),
        piece(T1, 5, 8),
    ]


@given(
    sizes=st.lists(st.integers(0, 1000), max_size=8),
    wanted=st.one_of(st.none(), st.integers(1, 50)),
    at_most=st.one_of(st.none(), st.integers(1, 400)),
)
def test_a_split_covers_every_offset_once(
    sizes: list[int], wanted: int | None, at_most: int | None
) -> None:
    ranges = [piece(TopicPartition("t", i), i, i + size) for i, size in enumerate(sizes)]
    pieces = split(ranges, wanted, at_most)
    covered = sorted((p.topic_partition, o) for p in pieces for o in range(p.start, p.end))
    assert covered == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]
    assert all(p.size > 0 for p in pieces)
    if wanted and sum(sizes) >= wanted:
        assert len(pieces) >= min(wanted, sum(sizes))
    if at_most:
        assert all(p.size <= at_most for p in pieces)
