"""Writes that Spark packs in the JVM, beside the same ones that it does not."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from sparklog.dataframe.jvm.constants import DIRECT_WRITES_CONF, PACKED_WRITES_CONF
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BATCH_OVERHEAD, iter_batches
from sparklog.wire.records.builder import decode_records, encode_batch
from tests.spark.dataframe_rig import Rig

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan_of(rig: Rig, frame: Any, topic: str, **options: str) -> str:
    """What Spark executes for the write of a frame."""
    rig.write(frame, topic, **options)
    plan: str = rig.last_execution()[1].physicalPlanDescription()
    return plan


def both_ways(rig: Rig, frame: Any, **options: str) -> list[list[tuple[Any, ...]]]:
    """The records of topics of one partition: packed, and not.

    Whether Python sends the packed ones or the JVM makes no difference.
    """
    found = []
    for packed, direct in (("true", "true"), ("true", "false"), ("false", "true")):
        topic = rig.new_topic(1, max_message_bytes=8_000_000)
        with rig.conf(PACKED_WRITES_CONF, packed), rig.conf(DIRECT_WRITES_CONF, direct):
            assert ("PackRecords" in plan_of(rig, frame, topic, **options)) is (packed == "true")
        timed = "timestamp" in frame.columns
        records = rig.consume(topic)
        found.append([(r.key, r.value, r.timestamp if timed else 0, r.headers) for r in records])
    sent, packed_rows, usual = found
    assert sent == packed_rows
    return [packed_rows, usual]


def test_random_rows_are_the_same_records_both_ways(rig: Rig) -> None:
    pick = random.Random(7)
    sizes = [0, 1, 2, 62, 63, 64, 127, 128, 8191, 8192, 20_000]
    rows = [
        (
            None if pick.random() < 0.1 else bytearray(pick.randbytes(pick.choice(sizes))),
            EPOCH + timedelta(microseconds=pick.randrange(-(10**15), 10**15)),
        )
        for _ in range(400)
    ]
    frame = rig.spark.createDataFrame(rows, "value binary, timestamp timestamp").coalesce(1)
    packed, usual = both_ways(rig, frame)
    assert packed == usual
    assert [(value, at) for _, value, at, _ in packed] == [
        (None if row[0] is None else bytes(row[0]), (row[1] - EPOCH) // timedelta(milliseconds=1))
        for row in rows
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_larger_than_a_batch_lie_alone(rig: Rig, codec: str) -> None:
    frame = rig.spark.range(0, 40, 1, 1).selectExpr(
        "timestamp_millis(id) AS timestamp",
        "repeat(string(id), if(id % 7 = 3, 30000, 40)) AS value",
    )
    options = {"kafka__batch__size": "20000", "kafka__compression__type": codec}
    packed, usual = both_ways(rig, frame, **options)
    assert packed == usual
    assert len(packed) == 40


@pytest.mark.parametrize("codegen", ["true", "false"])
@pytest.mark.parametrize("key", ["binary", "string"])
def test_rows_with_keys_are_the_same_records_both_ways(rig: Rig, codegen: str, key: str) -> None:
    """But for those whose key is null: they may go anywhere."""
    frame = rig.spark.range(0, 5000, 1, 1).selectExpr(
        "timestamp_millis(id * 7919 % 100003 - 50000) AS timestamp",
        "if(id % 13 = 0, NULL, repeat('v', int(id * 7919 % 301))) AS value",
        f"CAST(if(id % 11 = 0, NULL, repeat('kä', int(id % 31)) || id % 97) AS {key}) AS key",
    )
    found = []
    for packed in ("true", "false"):
        topic = rig.new_topic(7)
        with (
            rig.conf(PACKED_WRITES_CONF, packed),
            rig.conf("spark.sql.codegen.wholeStage", codegen),
        ):
            assert ("PackRecords" in plan_of(rig, frame, topic)) is (packed == "true")
        records = rig.consume(topic)
        keyed = [(r.partition, r.key, r.value, r.timestamp) for r in records if r.key is not None]
        rest = sorted((r.timestamp, r.value or b"") for r in records if r.key is None)
        found.append((keyed, rest))
    assert found[0] == found[1]
    assert len(found[0][0]) + len(found[0][1]) == 5000


@pytest.mark.parametrize("codegen", ["true", "false"])
@pytest.mark.parametrize("column", ["binary", "string"])
def test_steps_with_and_without_generated_code(rig: Rig, codegen: str, column: str) -> None:
    """The packer is part of that code, or takes the rows that it made."""
    value = f"CAST(if(id % 13 = 0, NULL, repeat('v', int(id * 7919 % 301))) AS {column}) AS value"
    time = "timestamp_millis((id * 7919 % 100003 - 80003) * 86400000) AS timestamp"
    rows = rig.spark.range(0, 4000, 1, 1)
    frames = {
        "computed": rows.selectExpr(value, time),
        "constant": rows.selectExpr("CAST('same' AS binary) AS value"),
        "null": rows.selectExpr(time, f"CAST(NULL AS {column}) AS value"),
        "sorted": rows.selectExpr(value, time).sortWithinPartitions("timestamp", "value"),
        "limited": rows.selectExpr(value, time).limit(777),
    }
    with rig.conf("spark.sql.codegen.wholeStage", codegen):
        for name, frame in frames.items():
            packed, usual = both_ways(rig, frame)
            assert packed == usual, name
            assert len(packed) == (777 if name == "limited" else 4000)


def test_the_packer_is_in_the_loop_of_the_steps_below_it(rig: Rig) -> None:
    """By itself it would be one more RDD than Spark makes for the rows."""
    tracker = rig.spark.sparkContext.statusTracker()

    def rdds_of_the_last_job() -> int:
        rig.spark._jsc.sc().listenerBus().waitUntilEmpty()
        [stage] = tracker.getJobInfo(max(tracker.getJobIdsForGroup())).stageIds
        return int(rig.spark._jsc.sc().statusStore().lastStageAttempt(stage).rddIds().size())

    frame = rig.spark.range(0, 30, 1, 1).selectExpr("string(id) AS value")
    frame.write.format("noop").mode("overwrite").save()
    rows = rdds_of_the_last_job()
    rig.write(frame, rig.new_topic(1))
    assert rdds_of_the_last_job() == rows
    rig.write(frame.coalesce(1), rig.new_topic(1))
    assert rdds_of_the_last_job() == rows + 2


def test_code_that_fills_several_classes(rig: Rig) -> None:
    """Megabytes of it: Spark puts functions into nested classes, which inherit nothing."""
    fields = 300

    def struct(last: int) -> str:
        values = [*(f"'f{i}', {i}L" for i in range(fields - 1)), f"'last', {last}L"]
        return f"named_struct({', '.join(values)})"

    compared = (
        f"string(if(id % {step} = 0, {struct(1)}, {struct(3)}) < {struct(2)})"
        for step in range(2, 26)
    )
    rule = "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches"
    with rig.conf("spark.sql.optimizer.excludedRules", rule):
        frame = rig.spark.range(0, 300, 1, 1).selectExpr(
            f"concat_ws(' ', string(id), {', '.join(compared)}) AS value"
        )
        packed, usual = both_ways(rig, frame)
    assert packed == usual
    assert len({value for _, value, *_ in packed}) == 300


def test_many_rows_of_one_make_several_pieces_at_once(rig: Rig) -> None:
    """Spark's loop asks only after all of them whether it should stop."""
    topic = rig.new_topic(1)
    frame = (
        rig.spark.range(0, 2, 1, 1)
        .selectExpr("explode(sequence(id * 70000, id * 70000 + 69999)) AS number")
        .selectExpr("string(number) AS value")
    )
    assert "PackRecords" in plan_of(rig, frame, topic)
    assert [int(r.value or b"") for r in rig.consume(topic)] == list(range(140_000))
    data = rig.client.fetch(TopicPartition(topic, 0), 0).records
    counts = [header.record_count for header, _ in iter_batches(data)]
    assert max(counts) > 8192
    for header, start in iter_batches(data):
        batch = bytes(data[start : start + header.size])
        again = encode_batch(decode_records(batch), base_offset=header.base_offset)
        assert again[BATCH_OVERHEAD:] == batch[BATCH_OVERHEAD:]


def test_plans_of_many_kinds_are_packed(rig: Rig) -> None:
    base = rig.spark.range(0, 300, 1, 3).selectExpr("string(id) AS value")
    cached = base.cache()
    frames = {
        "shuffled": base.repartition(2).sortWithinPartitions("value").coalesce(1),
        "grouped, with empty tasks": base.groupBy("value").count().selectExpr("value"),
        "cached": cached,
        "union": base.where("value < '2'").union(base.where("value >= '2'")),
    }
    try:
        for adaptive in ("true", "false"):
            with rig.conf("spark.sql.adaptive.enabled", adaptive):
                for name, frame in frames.items():
                    topic = rig.new_topic(2)
                    assert "PackRecords" in plan_of(rig, frame, topic), name
                    found = sorted(int(r.value or b"") for r in rig.consume(topic))
                    assert found == list(range(300)), (name, adaptive)
    finally:
        cached.unpersist()


def test_python_before_the_write_still_gets_large_batches(rig: Rig) -> None:
    """What says how many pieces go to Python at once is for the writer alone, whoever is first."""

    def rows_per_batch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"value": [str(batch.num_rows)]})

    sizes = rig.spark.range(0, 300, 1, 3).mapInArrow(rows_per_batch, "value string")
    add = udf(lambda number: number + 1, "bigint", useArrow=True)
    added = rig.spark.range(0, 300, 1, 3).select(add("id").cast("string").alias("value"))
    for frame in (sizes, sizes.coalesce(1)):
        topic = rig.new_topic(1)
        assert "PackRecords" not in plan_of(rig, frame, topic)
        assert [record.value for record in rig.consume(topic)] == [b"100"] * 3
    topic = rig.new_topic(1)
    assert "PackRecords" not in plan_of(rig, added, topic)
    assert len(rig.consume(topic)) == 300


def test_rows_without_a_time_get_one_and_others_keep_theirs(rig: Rig) -> None:
    topic = rig.new_topic(1)
    moment = datetime(2024, 5, 17, 12, 30, 0, 123_999, tzinfo=UTC)
    rows = [("a", None), ("b", moment), ("c", None), (None, EPOCH - timedelta(microseconds=1))]
    frame = rig.spark.createDataFrame(rows, "value string, timestamp timestamp").coalesce(1)
    before = datetime.now(UTC)
    assert "PackRecords" in plan_of(rig, frame, topic)
    found = rig.consume(topic)
    assert [record.value for record in found] == [b"a", b"b", b"c", None]
    first, given, third, early = (record.timestamp for record in found)
    assert (given, early) == (int(moment.timestamp() * 1000), -1)
    assert first == third
    assert before.timestamp() * 1000 - 1 <= first <= datetime.now(UTC).timestamp() * 1000
    [header] = [h for h, _ in iter_batches(rig.client.fetch(TopicPartition(topic, 0), 0).records)]
    assert header.max_timestamp == first


def test_small_pieces_come_first_and_spread(rig: Rig) -> None:
    topic = rig.new_topic(3)
    frame = rig.spark.range(0, 3000, 1, 1).selectExpr("repeat('v', 200) AS value")
    rig.write(frame, topic)
    partitions = [record.partition for record in rig.consume(topic)]
    assert len(partitions) == 3000
    assert min(partitions.count(number) for number in range(3)) > 500


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["string(id) AS value", "0 AS partition"], {}),
        (["string(id) AS value", "string(id) AS key"], {"kafka__acks": "1"}),
        (["string(id) AS value"], {"partitioner": "round_robin"}),
        (["string(id) AS value"], {"kafka__batch__size": "1000"}),
    ],
)
def test_other_writes_are_left_alone(rig: Rig, columns: list[str], options: dict[str, str]) -> None:
    topic = rig.new_topic(2)
    frame = rig.spark.range(0, 20, 1, 1).selectExpr(*columns)
    assert "PackRecords" not in plan_of(rig, frame, topic, **options)
    assert sorted(int(r.value or b"") for r in rig.consume(topic)) == list(range(20))


def test_a_task_that_fails_says_why(rig: Rig) -> None:
    topic = rig.new_topic(1)
    frame = rig.spark.range(0, 9, 1, 1).selectExpr("raise_error('row of the user')::string value")
    with pytest.raises(PySparkException, match="row of the user"):
        rig.write(frame, topic)
    assert rig.consume(topic) == []
