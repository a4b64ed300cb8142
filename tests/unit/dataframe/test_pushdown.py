"""Which filters become a lower time bound."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    Not,
)

from sparklog.dataframe.pushdown import timestamp_lower_bound_ms

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
        ([GreaterThan(("other",), AT_5MS)], None),
        ([GreaterThan(COLUMN, IN_BERLIN), GreaterThan(COLUMN, AT_5MS)], 5),
        ([GreaterThan(COLUMN, datetime(1969, 12, 31, 23, 59, 59, 999_500))], -1),
    ],
)
def test_the_lower_bound(filters: list[Filter], bound: int | None) -> None:
    assert timestamp_lower_bound_ms(filters) == bound
