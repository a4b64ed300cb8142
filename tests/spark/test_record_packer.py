"""The packer, on rows as steps of Spark make them: its pieces have the bytes that Python makes."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from dataframe_rig import Rig

from sparklog.dataframe.record_packer import FIRST_PIECE_BYTES, packed_rows_java
from sparklog.wire.batch import BATCH_OVERHEAD
from sparklog.wire.builder import Record, encode_batch

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

#: Value, and time in microseconds.
Row = tuple[bytes | None, int]
Piece = tuple[bytes, int, int, int]
SIZES = (0, 1, 2, 56, 63, 64, 127, 128, 8191, 8192, 200_000)
FAR = (0, -1, -1000, 999, 1000, 63_999, -64_001, 8_192_000, 10**15, -(10**15))


class Packer:
    """The class that executors compile, in a task of the driver's JVM."""

    def __init__(self, spark: Any, kind: str, limit: int) -> None:
        self._gateway = spark.sparkContext._gateway
        self._kind = kind
        self._limit = limit
        jvm = self._jvm = self._gateway.jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        comments = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        generated = self._expressions.codegen
        code = generated.CodeAndComment(packed_rows_java(), comments)
        self._compiled = generated.CodeGenerator.compile(code)._1()
        self._platform = jvm.org.apache.spark.unsafe.Platform
        column = "string" if kind == "string" else "binary"
        schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(
            f"time timestamp, value {column}"
        )
        self._unsafe = self._expressions.UnsafeProjection.create(schema)
        self._allocated: list[int] = []
        metrics = jvm.org.apache.spark.sql.execution.metric.SQLMetrics
        self.metric = metrics.createMetric(spark._jsc.sc(), "records")

    def pieces(self, rows: list[Row]) -> list[Piece]:
        jvm = self._jvm
        made = jvm.java.util.ArrayList()
        for row in rows:
            made.add(self._row(row))
        iterators = self._gateway.new_array(jvm.scala.collection.Iterator, 1)
        iterators[0] = jvm.scala.jdk.javaapi.CollectionConverters.asScala(made.iterator())
        given = (1, 0, self._kind == "string", self._limit, self.metric)
        packer = self._generate(self._objects(*given))
        tasks = getattr(getattr(jvm.org.apache.spark, "TaskContext$"), "MODULE$")
        tasks.setTaskContext(tasks.empty())
        try:
            packer.init(0, iterators)
            return list(self._taken(packer))
        finally:
            tasks.unset()
            for address in self._allocated:
                self._platform.freeMemory(address)

    def _generate(self, references: Any) -> Any:
        """By reflection: py4j takes classes of one name for the same, and all of Spark's are."""
        methods = self._compiled.getClass().getSuperclass().getDeclaredMethods()
        [generate] = [method for method in methods if method.getName() == "generate"]
        return generate.invoke(self._compiled, self._objects(references))

    def _taken(self, packer: Any) -> Iterator[Piece]:
        while packer.hasNext():
            row = packer.next()
            yield row.getBinary(0), row.getInt(1), row.getLong(2), row.getLong(3)

    def _row(self, row: Row) -> Any:
        value: Any = row[0]
        if self._kind == "string" and value is not None:
            value = self._jvm.org.apache.spark.unsafe.types.UTF8String.fromBytes(value)
        generic = self._expressions.GenericInternalRow(2)
        generic.setLong(0, row[1])
        generic.update(1, value)
        if self._kind in ("generic", "string"):
            return generic
        unsafe = self._unsafe.apply(generic).copy()
        if self._kind == "off heap":
            size = unsafe.getSizeInBytes()
            self._allocated.append(self._platform.allocateMemory(size))
            unsafe.writeToMemory(None, self._allocated[-1])
            unsafe.pointTo(None, self._allocated[-1], size)
        return unsafe

    def _objects(self, *values: Any) -> Any:
        made = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made


def by_python(rows: list[Row]) -> bytes:
    records = [
        Record(key=None, value=value, timestamp=micros // 1000, headers=(), offset=offset)
        for offset, (value, micros) in enumerate(rows)
    ]
    return encode_batch(records)[BATCH_OVERHEAD:]


@pytest.mark.parametrize("kind", ["generic", "unsafe", "off heap", "string"])
@pytest.mark.parametrize("limit", [16_000, 1_000_000])
def test_pieces_are_the_records_of_their_rows(rig: Rig, kind: str, limit: int) -> None:
    chance = random.Random(limit)
    rows: list[Row] = [
        (None if chance.random() < 0.1 else bytes([97]) * chance.choice(SIZES[:-1]), micros)
        for micros in chance.choices(FAR, k=130)
    ]
    rows[100:100] = [(b"v" * SIZES[-1], 7), (b"", 7_000), (None, -7)]
    packer = Packer(rig.spark, kind, limit)
    start = 0
    for records, count, base, latest in packer.pieces(rows):
        taken = rows[start : start + count]
        assert records == by_python(taken)
        assert (base, latest) == (taken[0][1] // 1000, max(at for _, at in taken) // 1000)
        assert len(records) <= min(limit, FIRST_PIECE_BYTES) or count == 1
        start += count
    assert start == len(rows) == packer.metric.value()


def test_without_rows_there_is_no_piece(rig: Rig) -> None:
    assert Packer(rig.spark, "unsafe", 16_000).pieces([]) == []
