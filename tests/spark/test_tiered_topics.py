"""DataFrames of tiered topics: most records are in the remote_dir only."""

from typing import Any

import pytest

from sparklog.types import OffsetSpec, TopicPartition
from tests.spark.dataframe_rig import Rig, SharedRig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

PARTITIONS = 2
RECORDS = 20_000
START_MS = 1_700_000_000_000
TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": 200_000,
    "local_retention_bytes": 200_000,
}


def local_starts(rig: Rig, topic: str) -> list[int]:
    """The first offset of each partition that is on the brokers' disks."""
    wanted = {TopicPartition(topic, n): int(OffsetSpec.EARLIEST_LOCAL) for n in range(PARTITIONS)}
    return [found.offset for found in rig.client.list_offsets(wanted).values()]


@pytest.fixture(scope="module")
def tiered(shared_rig: SharedRig) -> str:
    """Record n is in partition n % 2, and one second newer than the one before it."""
    rig = shared_rig.get()
    topic = rig.new_topic(PARTITIONS, **TIERED)
    frame = rig.spark.range(0, RECORDS, 1, 1).selectExpr(
        "string(id) AS key",
        "rpad(string(id), 200, ' ') AS value",
        f"int(id % {PARTITIONS}) AS partition",
        f"timestamp_millis({START_MS} + 1000 * id) AS timestamp",
    )
    rig.write(frame, topic, kafka__batch__size=20_000)
    wait_for(lambda: min(local_starts(rig, topic)) > RECORDS // PARTITIONS * 0.7)
    return topic


def totals(frame: Any) -> tuple[int, int]:
    """The number of rows, and the sum of the numbers in their values."""
    (row,) = frame.selectExpr("count(*)", "sum(int(trim(string(value))))").collect()
    return row[0], row[1]


def expected(first: int, end: int) -> tuple[int, int]:
    return end - first, sum(range(first, end))


def test_a_read_has_every_record_of_both_tiers(rig: Rig, tiered: str) -> None:
    assert totals(rig.read(tiered)) == expected(0, RECORDS)
    assert rig.read(tiered).groupBy().count().collect() == [(RECORDS,)]
    with rig.conf("spark.sparklog.packed.reads", "false"):
        assert totals(rig.read(tiered, minPartitions=8)) == expected(0, RECORDS)


def test_bounds_by_time_lie_in_either_tier(rig: Rig, tiered: str) -> None:
    for first, end in ((100, 300), (5_001, RECORDS - 10)):
        options = {
            "startingTimestamp": START_MS + 1000 * first,
            "endingTimestamp": START_MS + 1000 * end,
        }
        assert totals(rig.read(tiered, **options)) == expected(first, end)


def test_a_filter_on_the_timestamp_loses_nothing(rig: Rig, tiered: str) -> None:
    low, high = (f"timestamp_millis({START_MS + 1000 * n})" for n in (1_000, 3_000))
    frame = rig.read(tiered)
    assert totals(frame.where(f"timestamp >= {low}")) == expected(1_000, RECORDS)
    between = frame.where(f"timestamp >= {low} AND timestamp < {high}")
    assert totals(between) == expected(1_000, 3_000)
