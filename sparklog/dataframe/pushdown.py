"""Filters that a read can use without changing its result.

Owns: the translation of Spark's filters into a lower bound on the timestamp.  Must not know Spark's
classes (it reads their names and fields) or the client.  Every filter also goes back to Spark.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_lower_bound_ms(filters: Iterable[Any]) -> int | None:
    """The highest ``t`` such that no row with a timestamp below ``t`` (ms) passes all filters.

    The filters are a conjunction (``pyspark.sql.datasource.Filter``).  Rounds down, because a
    record's timestamp has whole milliseconds and Spark's has microseconds.
    """
    bounds = [bound for bound in map(_bound_of, filters) if bound is not None]
    return max(bounds, default=None)


def _bound_of(item: Any) -> int | None:
    kind = type(item).__name__
    if getattr(item, "attribute", None) != ("timestamp",):
        return None
    if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"):
        return _milliseconds(item.value)
    if kind == "In":
        wanted = [value for value in item.value if value is not None]
        known = [ms for ms in map(_milliseconds, wanted) if ms is not None]
        return min(known) if known and len(known) == len(wanted) else None
    return None


def _milliseconds(value: Any) -> int | None:
    """Spark hands timestamps over as datetimes with a zone; naive ones are in UTC."""
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
