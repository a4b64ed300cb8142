"""Filters that a read can use without changing its result.

Owns: the meaning of Spark's filters for times, offsets, partitions and topics, and how they narrow
ranges.  Must not know Spark's classes (it reads their names and fields) or the client.  Every
filter is also returned to Spark, so an unknown filter costs only the saving.

An upper bound on the timestamp ends no range: older records may follow newer ones, even where
brokers set the timestamps, because their clocks differ.  It saves what the lowest timestamps and
the statistics of segments in the bucket rule out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sparklog.dataframe.read.plan import OffsetRange
from sparklog.types import MAX_INT64, TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EQUAL = ("EqualTo", "EqualNullSafe")
#: The filters that bound a value below, and above.
_LOWER = ("GreaterThan", "GreaterThanOrEqual", *_EQUAL)
_UPPER = ("LessThan", "LessThanOrEqual", *_EQUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Bounds of all rows that pass the filters.

    ``lower_ms``: no passing row is older; ``upper_ms``: none is newer.  Offsets are
    ``[first_offset, end_offset)``.  ``others`` are filters on columns that are the same for all
    rows of a range.
    """

    lower_ms: int | None = None
    upper_ms: int | None = None
    first_offset: int = 0
    end_offset: int = MAX_INT64
    others: tuple[Any, ...] = ()

    def selects(self, tp: TopicPartition) -> bool:
        """Whether a row of the partition may pass."""
        values = {("topic",): tp.topic, ("partition",): tp.partition}
        return all(_may_hold(item, values[_attribute(item)]) for item in self.others)

    def apply(
        self, ranges: Iterable[OffsetRange], by_time: Mapping[TopicPartition, int | None]
    ) -> list[OffsetRange]:
        """The parts of ranges that may hold passing rows.

        ``by_time`` has, per partition, the first offset with timestamp >= ``lower_ms`` (None: no
        such record).  No earlier offset can pass, even where timestamps are unordered.
        """
        return [
            self._narrow(item, by_time) for item in ranges if self.selects(item.topic_partition)
        ]

    def _narrow(
        self, item: OffsetRange, by_time: Mapping[TopicPartition, int | None]
    ) -> OffsetRange:
        first = self.first_offset
        if self.lower_ms is not None:
            found = by_time.get(item.topic_partition)
            first = max(first, item.end if found is None else found)
        end = max(min(item.end, self.end_offset), item.start)
        start = min(max(item.start, first), end)
        return replace(
            item,
            start=start,
            end=end,
            min_timestamp_ms=self.lower_ms,
            max_timestamp_ms=self.upper_ms,
        )


def narrowing(filters: Iterable[Any]) -> Narrowing:
    """The narrowing by a conjunction of filters (``pyspark.sql.datasource.Filter``)."""
    found = Narrowing()
    for item in filters:
        column = _attribute(item)
        if column == ("timestamp",):
            found = _within(
                found, _time_bound_ms(item, _LOWER, min), _time_bound_ms(item, _UPPER, max)
            )
        elif column == ("offset",):
            first, end = _offsets(item)
            found = replace(
                found,
                first_offset=max(found.first_offset, first),
                end_offset=min(found.end_offset, end),
            )
        elif column in (("topic",), ("partition",)):
            found = replace(found, others=(*found.others, item))
    return found


def _attribute(item: Any) -> Any:
    """The column of a filter, also inside of ``Not``."""
    inner = item.child if type(item).__name__ == "Not" else item
    return getattr(inner, "attribute", None)


def _within(found: Narrowing, lower_ms: int | None, upper_ms: int | None) -> Narrowing:
    lower = [ms for ms in (found.lower_ms, lower_ms) if ms is not None]
    upper = [ms for ms in (found.upper_ms, upper_ms) if ms is not None]
    return replace(found, lower_ms=max(lower, default=None), upper_ms=min(upper, default=None))


def _time_bound_ms(
    item: Any, kinds: tuple[str, ...], outermost: Callable[[list[int]], int]
) -> int | None:
    """A bound, rounded down: records have milliseconds, Spark has microseconds."""
    kind = type(item).__name__
    if kind in kinds:
        return _milliseconds(item.value)
    if kind == "In":
        wanted = [value for value in item.value if value is not None]
        known = [ms for ms in map(_milliseconds, wanted) if ms is not None]
        return outermost(known) if known and len(known) == len(wanted) else None
    return None


def _offsets(item: Any) -> tuple[int, int]:
    """``[first, end)`` of the offsets that can pass."""
    kind = type(item).__name__
    if kind == "In":
        wanted = [value for value in item.value if isinstance(value, int)]
        return (min(wanted), max(wanted) + 1) if wanted else (0, MAX_INT64)
    value = getattr(item, "value", None)
    if not isinstance(value, int):
        return 0, MAX_INT64
    if kind in _EQUAL:
        return value, value + 1
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return value + (kind == "GreaterThan"), MAX_INT64
    if kind in ("LessThan", "LessThanOrEqual"):
        return 0, value + (kind == "LessThanOrEqual")
    return 0, MAX_INT64


def _may_hold(item: Any, actual: Any) -> bool:
    """False only if a filter cannot hold for the value, which is never null."""
    kind = type(item).__name__
    if kind == "Not":
        return _holds(item.child, actual) is not True
    return _holds(item, actual) is not False


def _holds(item: Any, actual: Any) -> bool | None:
    """Whether a comparison holds; None if that is unknown or null."""
    kind = type(item).__name__
    if kind == "In":
        known = [value for value in item.value if value is not None]
        return actual in known or (None if len(known) < len(item.value) else False)
    value = getattr(item, "value", None)
    if not isinstance(value, type(actual)):
        return None
    if kind in _EQUAL:
        return bool(actual == value)
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return bool(actual > value or (kind == "GreaterThanOrEqual" and actual == value))
    if kind in ("LessThan", "LessThanOrEqual"):
        return bool(actual < value or (kind == "LessThanOrEqual" and actual == value))
    if kind == "StringStartsWith":
        return bool(actual.startswith(value))
    if kind == "StringEndsWith":
        return bool(actual.endswith(value))
    if kind == "StringContains":
        return value in actual
    return None


def _milliseconds(value: Any) -> int | None:
    """A timestamp of Spark: a datetime with a zone, or a naive datetime in UTC."""
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
