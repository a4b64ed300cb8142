"""Rows that the JVM makes of record batches: the same as those that Python makes."""

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sparklog.dataframe.jvm.constants import BOUNDS, COLUMNS, PACKED_READS_CONF
from sparklog.dataframe.jvm.java_sources import UNPACKED_ROWS, generated_class
from sparklog.errors import DecodeError
from sparklog.types import TimestampType
from sparklog.wire.records.batch import BATCH_OVERHEAD
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.columns import decode_columns
from tests.spark.dataframe_rig import Rig

SHARES_CLUSTER = True

#: What Python is left to make rows of: columns that cannot be null.
BY_PYTHON = (
    "key binary, value binary, topic string, partition int, offset bigint NOT NULL, "
    "timestamp timestamp, timestampType int"
)
BEHIND = 2**60
REFUSALS = "lengths|longer|left over|negative|more headers|exceeds|says|out of bounds"


class Unpacker:
    """The class that executors compile, in the driver's JVM."""

    def __init__(self, spark: Any) -> None:
        self._gateway = spark.sparkContext._gateway
        jvm = self._jvm = self._gateway.jvm
        generated = jvm.org.apache.spark.sql.catalyst.expressions.codegen
        comments = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        code = generated.CodeAndComment(generated_class(UNPACKED_ROWS), comments)
        self._compiled = generated.CodeGenerator.compile(code)._1()
        metrics = jvm.org.apache.spark.sql.execution.metric.SQLMetrics
        self.metric = metrics.createMetric(spark._jsc.sc(), "rows")

    def rows(self, values: Sequence[bytes]) -> Iterator[dict[str, Any]]:
        """Raises Py4JJavaError."""
        jvm, gateway = self._jvm, self._gateway
        pieces = jvm.java.util.ArrayList()
        for value in values:
            fields = gateway.new_array(jvm.java.lang.Object, 1)
            fields[0] = value
            row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(fields)
            pieces.add(row)
        iterators = gateway.new_array(jvm.scala.collection.Iterator, 1)
        iterators[0] = jvm.scala.jdk.javaapi.CollectionConverters.asScala(pieces.iterator())
        kinds = gateway.new_array(jvm.int, len(COLUMNS))
        references = gateway.new_array(jvm.java.lang.Object, 3)
        for index in range(len(COLUMNS)):
            kinds[index] = index
        references[0], references[1], references[2] = 0, kinds, self.metric
        unpacker = self._compiled.generate(references)
        unpacker.init(0, iterators)
        while unpacker.hasNext():
            row = unpacker.next()
            yield {
                "key": None if row.isNullAt(0) else row.getBinary(0),
                "value": None if row.isNullAt(1) else row.getBinary(1),
                "offset": row.getLong(4),
                "timestamp": row.getLong(5),
                "timestampType": row.getInt(6),
            }


@pytest.fixture
def unpacker(rig: Rig) -> Unpacker:
    return Unpacker(rig.spark)


def bounds(start: int = 0, end: int = BEHIND) -> list[bytes]:
    return [b"", BOUNDS.pack(start, end, 3) + b"topic"]


def by_python(data: bytes, **limits: int) -> list[dict[str, Any]]:
    columns = frozenset({"key", "value", "offset", "timestamp", "timestampType"})
    found = []
    for batch in decode_columns(data, columns=columns, check_crc=False, **limits):
        index = batch.schema.get_field_index("timestamp")
        plain = batch.set_column(index, "timestamp", batch["timestamp"].cast("int64"))
        found += plain.to_pylist()
    return found


def test_the_rows_are_those_of_the_columns(unpacker: Unpacker) -> None:
    sizes = (0, 1, 56, 57, 63, 64, 8000, 8192, 200_000)
    records = [
        Record(
            value=None if size == 1 else b"v" * size,
            key=None if size == 57 else b"k" * (size % 70),
            timestamp=(-1) ** size * size**3,
            headers=(("name", b"content"),) * (size % 3),
        )
        for size in sizes
    ]
    early, late = records[:1] * 3, [Record(value=b"", timestamp=2**62)]
    first = encode_batch(early, base_offset=10) + encode_batch(records, base_offset=20)
    second = encode_batch(late, base_offset=2**40)
    third = encode_batch(
        records[:3], base_offset=2**50, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    expected = by_python(first + second + third, start_offset=12, end_offset=2**50 + 2)
    assert len(expected) == 1 + len(records) + 1 + 2
    found = unpacker.rows([*bounds(12, 2**50 + 2), first, second + third])
    assert list(found) == expected
    assert unpacker.metric.value() == len(expected)


def test_bounds_hold_until_there_are_others(unpacker: Unpacker) -> None:
    batch = encode_batch([Record(value=b"%d" % n) for n in range(5)])
    pieces = [*bounds(1, 3), batch, *bounds(4), batch, batch]
    assert [row["value"] for row in unpacker.rows(pieces)] == [b"1", b"2", b"4", b"4"]
    assert list(unpacker.rows([])) == []
    with pytest.raises(Exception, match="records came before their bounds"):
        list(unpacker.rows([batch]))


def test_what_python_refuses_the_jvm_refuses_too(unpacker: Unpacker) -> None:
    """Else the rows are the same, however a batch was damaged."""
    chance = random.Random(4)
    good = encode_batch(
        [
            Record(value=b"value", key=None, timestamp=3),
            Record(value=None, key=b"key", timestamp=900, headers=(("h", b""),)),
            Record(value=b"v" * 70, key=b"", timestamp=4),
        ]
    )
    refused = 0
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(BATCH_OVERHEAD, len(good) - 60)
            damaged[at] = chance.choice((0, 1, 2, 3, 127, 128, 255, chance.randrange(256)))
        if chance.random() < 0.1:
            struct.pack_into(">i", damaged, 57, chance.choice((0, 1, 2, 4)))
        try:
            expected = by_python(bytes(damaged), start_offset=-BEHIND)
        except DecodeError:
            refused += 1
            with pytest.raises(Exception, match=REFUSALS):
                list(unpacker.rows([*bounds(-BEHIND), bytes(damaged)]))
        else:
            assert list(unpacker.rows([*bounds(-BEHIND), bytes(damaged)])) == expected
    assert 30 < refused < 140


def test_a_query_gets_the_same_rows_either_way(rig: Rig) -> None:
    topic = rig.new_topic(2)
    frame = rig.spark.range(0, 1500, 1, 2).selectExpr(
        "IF(id % 3 = 0, NULL, binary(string(id))) AS key",
        "IF(id % 5 = 0, NULL, binary(repeat('v', int(id % 400)))) AS value",
        "timestamp_millis(id * 700) AS timestamp",
    )
    codecs = ("none", "zstd")
    for codec in codecs:
        rig.write(frame, topic, kafka__compression__type=codec, kafka__batch__size="20000")
    options = {"maxRecordsPerPartition": "900"}
    ours, python = rig.read(topic, **options), rig.read(topic, BY_PYTHON, **options)
    assert [unpacks(ours), unpacks(python), unpacks(ours.select("offset"))] == [True, False, False]
    rig.spark.conf.set(PACKED_READS_CONF, "false")
    try:
        assert not unpacks(ours.select("value"))
    finally:
        rig.spark.conf.unset(PACKED_READS_CONF)
    order = ("partition", "offset")
    rows = ours.orderBy(*order).collect()
    assert rows == python.orderBy(*order).collect()
    assert len(rows) == 1500 * len(codecs)
    late = "timestamp >= timestamp_millis(500000) AND partition = 1 AND offset % 7 = 0"
    columns = ("key", "offset", "value", "topic", "timestampType")
    assert (
        ours.where(late).select(*columns).orderBy("offset").collect()
        == python.where(late).select(*columns).orderBy("offset").collect()
    )
    lengths = sum(len(row.value) for row in rows if row.value is not None)
    assert ours.selectExpr("sum(length(value))").collect() == [(lengths,)]
    assert len(ours.limit(7).collect()) == 7


def test_operators_that_bring_their_plan_along(rig: Rig) -> None:
    topic = rig.new_topic(2)
    rig.fill(topic, 50)
    ours = rig.read(topic)
    pairs = ours.alias("a").join(ours.alias("b"), "key").selectExpr("a.offset", "b.value AS value")
    assert pairs.count() == 50
    assert ours.sort("value").select("key").limit(3).count() == 3
    assert ours.select("value").distinct().repartition(3).count() == 50
    assert ours.cache().select("value").count() == 50
    assert ours.mapInArrow(lambda batches: batches, ours.schema).count() == 50
    ours.unpersist()


def unpacks(frame: Any) -> bool:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return "Unpack" in plan
