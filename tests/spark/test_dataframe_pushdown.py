"""Filters save bytes and never change a result."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.dataframe_rig import Rig, SharedRig

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

SWITCH = "spark.sql.python.filterPushdown.enabled"
DAYS = 365
EVENTS_PER_DAY = 200
DAY_MS = 86_400_000
#: 2023-01-01.
YEAR_STARTS_MS = 1_672_531_200_000
NEWEST_DAY = "timestamp >= '2023-12-31' AND timestamp < '2024-01-01'"


@contextmanager
def switched_off(rig: Rig) -> Iterator[None]:
    rig.spark.conf.set(SWITCH, "false")
    try:
        yield
    finally:
        rig.spark.conf.set(SWITCH, "true")


@pytest.fixture(scope="module")
def year(shared_rig: SharedRig) -> str:
    """A year of events in time order, over six partitions by their key."""
    rig = shared_rig.get()
    topic = rig.new_topic(6)
    apart_ms = DAY_MS // EVENTS_PER_DAY
    frame = rig.spark.range(0, DAYS * EVENTS_PER_DAY, 1, 1).selectExpr(
        "string(id % 97) AS key",
        "rpad(string(id), 300, ' ') AS value",
        f"timestamp_millis({YEAR_STARTS_MS} + id * {apart_ms}) AS timestamp",
    )
    rig.write(frame, topic, kafka__batch__size=64 * 1024)
    return topic


@pytest.fixture(scope="module")
def shuffled(shared_rig: SharedRig) -> tuple[str, list[int]]:
    """Timestamps (milliseconds) in no order, many of them twice, in small batches."""
    rig = shared_rig.get()
    chance = random.Random(7)
    times = [chance.randrange(-2_000, 5_000) for _ in range(4_000)]
    topic = rig.new_topic(3)
    rows = [(str(number), time) for number, time in enumerate(times)]
    frame = rig.spark.createDataFrame(rows, "value string, time bigint").coalesce(1)
    frame = frame.selectExpr("value AS key", "value", "timestamp_millis(time) AS timestamp")
    rig.write(frame, topic, kafka__batch__size=1_000)
    return topic, times


def fetched(rig: Rig, topic: str, frame: Any) -> tuple[int, int]:
    """The count of a frame, and the bytes that brokers sent for it."""
    before = rig.counted("bytes_out", topic)
    return frame.count(), rig.counted("bytes_out", topic) - before


def test_one_day_of_a_year_fetches_a_tenth_of_the_topic_at_most(rig: Rig, year: str) -> None:
    topic_bytes = rig.counted("bytes_in", year)
    pushed = fetched(rig, year, rig.read(year).where(NEWEST_DAY))
    with switched_off(rig):
        scanned = fetched(rig, year, rig.read(year).where(NEWEST_DAY))
    assert (pushed[0], scanned[0]) == (EVENTS_PER_DAY, EVENTS_PER_DAY)
    assert pushed[1] < topic_bytes / 10
    assert scanned[1] >= topic_bytes


def test_the_newest_hour_is_read_alone_however_it_is_said(rig: Rig, year: str) -> None:
    hour_ms = DAY_MS // 24
    events = hour_ms * EVENTS_PER_DAY // DAY_MS
    first_ms = YEAR_STARTS_MS + DAYS * DAY_MS - hour_ms
    most_bytes = rig.counted("bytes_in", year) / 10
    between = f"timestamp_millis({first_ms}) AND timestamp_millis({first_ms + hour_ms - 1})"
    for where, expected in (
        (f"timestamp BETWEEN {between}", events),
        ("timestamp >= timestamp'2024-01-01' - INTERVAL 1 HOUR", events),
        ("timestamp > current_timestamp() - INTERVAL 1 HOUR", 0),
    ):
        found, sent_bytes = fetched(rig, year, rig.read(year).where(where))
        assert (found, sent_bytes < most_bytes) == (expected, True), where


def test_one_partition_and_few_offsets_fetch_only_those(rig: Rig, year: str) -> None:
    topic_bytes = rig.counted("bytes_in", year)
    one = fetched(rig, year, rig.read(year).where("partition = 2 AND offset BETWEEN 100 AND 199"))
    some = fetched(rig, year, rig.read(year).where("NOT partition IN (0, 1, 2, 3, 4)"))
    none = fetched(rig, year, rig.read(year).where("topic = 'another'"))
    with switched_off(rig):
        unpushed = rig.read(year).where("NOT partition IN (0, 1, 2, 3, 4)").count()
    assert (one[0], some[0], none) == (100, unpushed, (0, 0))
    assert one[1] < topic_bytes / 20
    assert some[1] < topic_bytes / 3


@pytest.mark.parametrize("seed", range(6))
def test_pushed_equals_unpushed_whatever_the_order_of_timestamps(
    rig: Rig, shuffled: tuple[str, list[int]], seed: int
) -> None:
    topic, times = shuffled
    chance = random.Random(seed)
    where, holds = some_filter(chance, times)
    expected = sorted(number for number, time in enumerate(times) if holds(time))
    frame = rig.read(topic).where(where).selectExpr("int(string(value)) AS number")
    found = sorted(row.number for row in frame.collect())
    assert found == expected, where


def some_filter(chance: random.Random, times: list[int]) -> tuple[str, Any]:
    """A condition in SQL, and the same in Python."""
    low, high = sorted((chance.randrange(-2_500, 5_500), chance.choice(times)))
    exact = chance.choice(times)

    def at(time: int) -> str:
        return f"timestamp_micros({time * 1000 + chance.choice((0, 1, 999))})"

    kinds: list[tuple[str, Any]] = [
        (f"timestamp >= timestamp_millis({low})", lambda time: time >= low),
        (f"timestamp > {at(low)}", lambda time: time > low),
        (
            f"timestamp > timestamp_millis({low}) AND timestamp <= timestamp_millis({high})",
            lambda time: low < time <= high,
        ),
        (f"timestamp = timestamp_millis({exact})", lambda time: time == exact),
        (
            f"timestamp IN (timestamp_millis({exact}), timestamp_millis({high}), NULL)",
            lambda time: time in (exact, high),
        ),
        (
            f"timestamp >= timestamp_millis({low}) AND timestamp <= timestamp_millis(-1)",
            lambda time: low <= time <= -1,
        ),
        (
            f"NOT timestamp < timestamp_millis({low}) OR timestamp = timestamp_millis({exact})",
            lambda time: time >= low or time == exact,
        ),
    ]
    return kinds[chance.randrange(10**6) % len(kinds)]


def test_every_scan_of_a_frame_has_its_own_filters(
    rig: Rig, shuffled: tuple[str, list[int]]
) -> None:
    """Spark keeps one plan per frame; each of these would inherit the bounds of another."""
    topic, times = shuffled
    frame = rig.read(topic)
    frame.createOrReplaceTempView("shuffled")
    late, later = "timestamp >= timestamp_millis(1000)", "timestamp >= timestamp_millis(4000)"
    n_late, n_later = sum(t >= 1000 for t in times), sum(t >= 4000 for t in times)

    assert frame.where(later).count() == n_later
    assert frame.where(late).count() == n_late
    assert frame.count() == len(times)
    assert frame.where("length(value) > 0").count() == len(times)
    union = " UNION ALL ".join(
        f"SELECT count(*) AS n FROM shuffled WHERE {where}" for where in (late, "true", later)
    )
    assert sorted(row.n for row in rig.spark.sql(union).collect()) == sorted(
        (n_late, len(times), n_later)
    )
    joined = rig.spark.sql(
        f"WITH late AS (SELECT * FROM shuffled WHERE {later}) "
        "SELECT count(*) FROM shuffled LEFT ANTI JOIN late USING (partition, offset)"
    )
    assert joined.collect() == [(len(times) - n_later,)]
    inner = f"SELECT max(timestamp) FROM shuffled WHERE NOT {later}"
    assert rig.spark.sql(f"SELECT * FROM shuffled WHERE timestamp > ({inner})").count() == n_later
    cached = frame.where(later).cache()
    assert (cached.count(), frame.count(), cached.count()) == (n_later, len(times), n_later)
    cached.unpersist()


def scanned(frame: Any) -> list[str]:
    """The columns that each scan of a frame gives, in the order of the plan."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return [re.sub(r"#\d+L?", "", found) for found in re.findall(r"sparklog\[(.*?)\]", plan)]


def test_columns_that_a_query_does_not_use_are_not_decoded(
    rig: Rig, shuffled: tuple[str, list[int]]
) -> None:
    topic, times = shuffled
    frame = rig.read(topic)
    frame.createOrReplaceTempView("shuffled")
    lengths = frame.selectExpr("sum(length(value))")
    late = frame.where("timestamp >= timestamp_millis(1000)")
    counted = frame.groupBy().count()
    kept = frame.selectExpr("key", "offset").where("length(key) = 4")
    highest = rig.spark.sql(
        "SELECT partition, max(offset) FROM shuffled WHERE offset < "
        "(SELECT max(length(value)) FROM shuffled s WHERE s.key IS NOT NULL) GROUP BY partition"
    )
    assert [scanned(each) for each in (lengths, counted, late.groupBy().count(), kept)] == [
        ["value"],
        ["partition"],
        ["timestamp"],
        ["key, offset"],
    ]
    assert set(scanned(highest)) == {"partition, offset", "key, value"}
    numbers = range(len(times))
    assert lengths.collect() == [(sum(len(str(number)) for number in numbers),)]
    assert counted.collect() == [(len(times),)]
    assert late.groupBy().count().collect() == [(sum(time >= 1000 for time in times),)]
    assert kept.count() == sum(len(str(number)) == 4 for number in numbers)
    assert sorted(highest.collect()) == [(0, 3), (1, 3), (2, 3)]
    assert set(frame.limit(2).collect()[0].asDict()) == set(frame.columns)


def test_a_schema_of_the_user_is_narrowed_too(rig: Rig, shuffled: tuple[str, list[int]]) -> None:
    topic, times = shuffled
    frame = rig.read(topic, "value binary, key binary")
    counted = frame.groupBy().count()
    assert (scanned(counted), counted.collect()) == (["key"], [(len(times),)])


def test_a_session_without_the_rule_reads_everything(
    rig: Rig, shuffled: tuple[str, list[int]]
) -> None:
    """As over Spark Connect: the scan is not marked, so that filters are left to Spark."""
    topic, times = shuffled
    frame = rig.read(topic)
    rig.spark.conf.set("spark.sql.optimizer.excludedRules", "SparklogOwnScans")
    try:
        counts = [
            frame.where("timestamp >= timestamp_millis(4000)").count(),
            frame.count(),
        ]
    finally:
        rig.spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert counts == [sum(time >= 4000 for time in times), len(times)]
