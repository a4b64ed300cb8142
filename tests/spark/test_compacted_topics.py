"""A compacted topic as a DataFrame: gaps between batches and inside of them are no data loss."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sparklog.types import Compression, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.spark.dataframe_rig import Rig, SharedRig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

SEGMENT_MS = 600_000
#: Records of a batch.
BATCH = 10
#: Offsets of keys that are written once; the other keys are written in every batch.
ONCE = (*(5, 7, 8), 105, 107, *range(152, 156), *range(200, 210))
CLEAN, END = 290, 300
LEFT = [*ONCE, *range(CLEAN - BATCH, END)]


def record(offset: int) -> Record:
    """Timestamps are 1000 * offset, and the active segment begins later."""
    key = b"once %d" % offset if offset in ONCE else b"%d" % (offset % BATCH)
    when = 1000 * offset + (SEGMENT_MS if offset >= CLEAN else 0)
    headers = (("h", b"%d" % offset),) if offset % 2 else ()
    return Record(key=key, value=b"v%d" % offset, timestamp=when, headers=headers)


@pytest.fixture(scope="module")
def compacted(shared_rig: SharedRig) -> Iterator[str]:
    """A topic of one partition, with offsets 0 to 299, of which those in ``LEFT`` are left."""
    rig = shared_rig.get()
    admin = rig.client.admin
    admin.alter_broker_configs(None, {"log.cleaner.backoff.ms": "100"})
    topic = rig.new_topic(
        1, cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_ms=SEGMENT_MS
    )
    tp = TopicPartition(topic, 0)
    for base in range(0, END, BATCH):
        records = [record(offset) for offset in range(base, base + BATCH)]
        codec = Compression(base // BATCH % 5)
        rig.client.produce(tp, [encode_batch(records, compression=codec)], acks=-1)
    wait_for(lambda: offsets_of_a_consumer(rig, tp) == LEFT)
    yield topic
    admin.alter_broker_configs(None, {"log.cleaner.backoff.ms": None})


def offsets_of_a_consumer(rig: Rig, tp: TopicPartition) -> list[int]:
    found: list[int] = []
    with rig.client.consumer() as consumer:
        consumer.assign([tp])
        while not found or found[-1] < END - 1:
            found += [each.offset for each in consumer.poll(max_records=1000)]
    return found


#: What makes rows: the JVM, or Python.
COLUMNS = {"jvm": ["offset", "value", "timestamp"], "python": ["offset", "value", "headers"]}


def check(frame: Any, expected: list[int]) -> None:
    for columns in COLUMNS.values():
        rows = sorted(frame.select(*columns).collect())
        assert [row.offset for row in rows] == expected
        assert [bytes(row.value) for row in rows] == [record(row.offset).value for row in rows]
    assert frame.count() == len(expected)


def between(start: int, end: int) -> list[int]:
    return [offset for offset in LEFT if start <= offset < end]


def test_everything(rig: Rig, compacted: str) -> None:
    frame = rig.read(compacted, includeHeaders=True)
    check(frame, LEFT)
    assert frame.limit(4).count() == 4
    assert frame.selectExpr("count(DISTINCT key)").first()[0] == len(ONCE) + BATCH


#: In a batch, inside of one with gaps, in a gap, and over several.
RANGES = [(106, 107), (6, 8), (108, 153), (20, 100), (30, 31), (154, 201), (289, 295)]


@pytest.mark.parametrize(("start", "end"), RANGES)
def test_bounds_inside_of_gaps(rig: Rig, compacted: str, start: int, end: int) -> None:
    bounds = (f'{{"{compacted}": {{"0": {offset}}}}}' for offset in (start, end))
    options = dict(zip(("startingOffsets", "endingOffsets"), bounds, strict=True))
    frame = rig.read(compacted, **options, includeHeaders=True)
    check(frame, between(start, end))
    pushed = rig.read(compacted, includeHeaders=True)
    check(pushed.where(f"offset >= {start} AND offset < {end}"), between(start, end))


@pytest.mark.parametrize("options", [{"minPartitions": 13}, {"maxRecordsPerPartition": 7}])
def test_tasks_of_which_some_find_nothing(
    rig: Rig, compacted: str, options: dict[str, Any]
) -> None:
    frame = rig.read(compacted, **options, includeHeaders=True)
    assert frame.rdd.getNumPartitions() >= 13
    check(frame, LEFT)


@pytest.mark.parametrize(("start", "end"), [(104, 154), (9, 100), (0, 6)])
def test_times_inside_of_gaps(rig: Rig, compacted: str, start: int, end: int) -> None:
    frame = rig.read(
        compacted,
        startingTimestamp=1000 * start,
        endingTimestamp=1000 * end,
        includeHeaders=True,
    )
    check(frame, between(start, end))
    low, high = (datetime.fromtimestamp(offset, UTC).isoformat() for offset in (start, end))
    pushed = rig.read(compacted, includeHeaders=True)
    check(pushed.where(f"timestamp >= '{low}' AND timestamp < '{high}'"), between(start, end))
