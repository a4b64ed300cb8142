"""The meaning of filters for times, offsets, partitions and topics."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.pushdown import Narrowing, narrowing
from sparklog.types import MAX_INT64, TopicPartition

COLUMN = ("timestamp",)
AT_5MS = datetime(1970, 1, 1, 0, 0, 0, 5900, tzinfo=UTC)
IN_BERLIN = datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("filters", "bound"),
    [
        ([], None),
        ([GreaterThanOrEqual(COLUMN, AT_5MS)], 5),
        ([GreaterThan(COLUMN, AT_5MS)], 5),
        ([EqualTo(COLUMN, IN_BERLIN)], 0),
        ([In(COLUMN, (AT_5MS, IN_BERLIN))], 0),
        ([In(COLUMN, (AT_5MS, None))], 5),
        ([LessThan(COLUMN, AT_5MS), IsNotNull(COLUMN)], None),
        ([Not(GreaterThan(COLUMN, AT_5MS))], None),
        ([GreaterThan(("value",), AT_5MS)], None),
        ([GreaterThan(COLUMN, IN_BERLIN), GreaterThan(COLUMN, AT_5MS)], 5),
        ([GreaterThan(COLUMN, datetime(1969, 12, 31, 23, 59, 59, 999_500))], -1),
    ],
)
def test_the_lower_bound(filters: list[Filter], bound: int | None) -> None:
    assert narrowing(filters).lower_ms == bound


@pytest.mark.parametrize(
    ("filters", "bound"),
    [
        ([], None),
        ([LessThanOrEqual(COLUMN, AT_5MS)], 5),
        ([LessThan(COLUMN, AT_5MS)], 5),
        ([EqualTo(COLUMN, IN_BERLIN)], 0),
        ([EqualNullSafe(COLUMN, None)], None),
        ([In(COLUMN, (AT_5MS, IN_BERLIN))], 5),
        ([In(COLUMN, (IN_BERLIN, None))], 0),
        ([In(COLUMN, ())], None),
        ([GreaterThan(COLUMN, AT_5MS), IsNotNull(COLUMN)], None),
        ([Not(LessThan(COLUMN, AT_5MS))], None),
        ([LessThan(("value",), AT_5MS)], None),
        ([LessThan(COLUMN, IN_BERLIN), LessThan(COLUMN, AT_5MS)], 0),
        ([LessThan(COLUMN, datetime(1969, 12, 31, 23, 59, 59, 999_500))], -1),
    ],
)
def test_the_upper_bound(filters: list[Filter], bound: int | None) -> None:
    assert narrowing(filters).upper_ms == bound


OFFSET = ("offset",)


@pytest.mark.parametrize(
    ("filters", "first", "end"),
    [
        ([EqualTo(OFFSET, 7)], 7, 8),
        ([EqualNullSafe(OFFSET, None)], 0, MAX_INT64),
        ([GreaterThan(OFFSET, 7), LessThan(OFFSET, 20)], 8, 20),
        ([GreaterThanOrEqual(OFFSET, 7), LessThanOrEqual(OFFSET, 20)], 7, 21),
        ([In(OFFSET, (9, None, 3)), GreaterThan(OFFSET, 1)], 3, 10),
        ([In(OFFSET, (None,))], 0, MAX_INT64),
        ([Not(EqualTo(OFFSET, 7)), IsNotNull(OFFSET)], 0, MAX_INT64),
    ],
)
def test_the_offsets(filters: list[Filter], first: int, end: int) -> None:
    assert narrowing(filters) == Narrowing(first_offset=first, end_offset=end)


TOPIC, PARTITION = ("topic",), ("partition",)


@pytest.mark.parametrize(
    ("item", "selected"),
    [
        (EqualTo(PARTITION, 3), True),
        (EqualTo(PARTITION, 2), False),
        (EqualTo(PARTITION, None), True),
        (EqualNullSafe(TOPIC, "flights"), True),
        (EqualTo(TOPIC, "trains"), False),
        (In(PARTITION, (1, 2)), False),
        (In(PARTITION, (1, None)), True),
        (In(PARTITION, (1, 3)), True),
        (GreaterThan(PARTITION, 3), False),
        (GreaterThanOrEqual(PARTITION, 3), True),
        (LessThan(PARTITION, 3), False),
        (LessThanOrEqual(TOPIC, "flightt"), True),
        (StringStartsWith(TOPIC, "fl"), True),
        (StringEndsWith(TOPIC, "fl"), False),
        (StringContains(TOPIC, "igh"), True),
        (IsNotNull(TOPIC), True),
        (Not(EqualTo(TOPIC, "flights")), False),
        (Not(EqualTo(TOPIC, "trains")), True),
        (Not(EqualTo(TOPIC, None)), True),
        (Not(In(PARTITION, (3, None))), False),
    ],
)
def test_which_partitions(item: Filter, selected: bool) -> None:
    assert narrowing([item]).selects(TopicPartition("flights", 3)) is selected


def piece(number: int, start: int, end: int, lower: int | None = None) -> OffsetRange:
    tp = TopicPartition("t", number)
    return OffsetRange(topic_partition=tp, start=start, end=end, min_timestamp_ms=lower)


def test_a_lower_time_bound_narrows_each_range() -> None:
    ranges = [piece(0, 0, 100), piece(1, 0, 100), piece(2, 50, 100)]
    starts = {TopicPartition("t", 0): 30, TopicPartition("t", 1): None, TopicPartition("t", 2): 10}
    assert Narrowing(lower_ms=7).apply(ranges, starts) == [
        piece(0, 30, 100, 7),
        piece(1, 100, 100, 7),
        piece(2, 50, 100, 7),
    ]


def test_an_upper_time_bound_ends_no_range() -> None:
    """Older records may follow newer ones."""
    found = narrowing([LessThan(COLUMN, AT_5MS)]).apply([piece(0, 0, 100)], {})
    assert found == [replace(piece(0, 0, 100), max_timestamp_ms=5)]


def test_offsets_and_partitions_narrow_too() -> None:
    found = narrowing([GreaterThan(OFFSET, 20), LessThan(OFFSET, 60), In(PARTITION, (0, 2, 4))])
    ranges = [piece(0, 0, 100), piece(1, 0, 100), piece(2, 70, 100), piece(4, 0, 10)]
    assert found.apply(ranges, {}) == [piece(0, 21, 60), piece(2, 70, 70), piece(4, 10, 10)]
