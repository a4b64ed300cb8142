"""The packer as executors compile it, run in a task of the driver's JVM without a job.

Owns: the classes of the JVM that it takes.  Must not know what the rows should be.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sparklog.dataframe.jvm.constants import PIECES_PER_BATCH
from sparklog.dataframe.jvm.java_sources import PACKED_ROWS, generated_class
from tests.support.packed_rows import SCHEMA

#: Value, time in microseconds, and perhaps a key.
Row = tuple[bytes | None, int] | tuple[bytes | None, int, bytes | None]


class JvmPacker:
    """``kind`` is how Spark's steps have the rows: generic, unsafe, off heap, or string."""

    def __init__(self, spark: Any, kind: str, limit: int, *, keyed: bool = False) -> None:
        self._gateway = spark.sparkContext._gateway
        self._kind = kind
        self._keyed = keyed
        self._limit = limit
        jvm = self._jvm = self._gateway.jvm
        #: Of what it sends by itself.
        self.destination: Sequence[str] | None = None
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        comments = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        generated = self._expressions.codegen
        code = generated.CodeAndComment(generated_class(PACKED_ROWS), comments)
        self._compiled = generated.CodeGenerator.compile(code)._1()
        self._platform = jvm.org.apache.spark.unsafe.Platform
        schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(
            "time timestamp, value binary, key binary"
        )
        self._unsafe = self._expressions.UnsafeProjection.create(schema)
        self._apply = _method(self._unsafe, "apply")
        self._allocated: list[int] = []
        metrics = jvm.org.apache.spark.sql.execution.metric.SQLMetrics
        self.metric = metrics.createMetric(spark._jsc.sc(), "records")
        tasks = getattr(getattr(jvm.org.apache.spark, "TaskContext$"), "MODULE$")
        self._tasks = tasks
        #: Of the task, as Spark makes one for each.
        self.context = tasks.empty()

    def static(self, name: str, method: str, *numbers: int) -> Any:
        """What a class beside the packer makes of ints."""
        jvm = self._jvm
        outer = self._compiled.getClass()
        kind = outer.getClassLoader().loadClass(f"{outer.getName()}${name}")
        types = self._gateway.new_array(jvm.java.lang.Class, len(numbers))
        for index in range(len(numbers)):
            types[index] = jvm.java.lang.Integer.TYPE
        found = kind.getDeclaredMethod(method, types)
        found.setAccessible(True)
        return found.invoke(None, self._objects(*numbers))

    def batches(self, rows: Sequence[Row | None]) -> Iterator[pa.RecordBatch]:
        """What Python gets.  A row that is None fails the task."""
        with self._packed(rows) as packed:
            while packed.hasNext():
                taken = []
                while len(taken) < PIECES_PER_BATCH and packed.hasNext():
                    taken.append(_values(packed.next()))
                columns = [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*taken, strict=True), SCHEMA, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    @contextmanager
    def _packed(self, rows: Sequence[Row | None]) -> Iterator[Any]:
        jvm = self._jvm
        made = jvm.java.util.ArrayList()
        for row in rows:
            made.add(None if row is None else self._row(row))
        iterators = self._gateway.new_array(jvm.scala.collection.Iterator, 1)
        iterators[0] = jvm.scala.jdk.javaapi.CollectionConverters.asScala(made.iterator())
        text = self._kind == "string"
        key = 2 if self._keyed else -1
        given = (1, 0, key, text, text, self._limit, self.metric, self._texts())
        packer = self._generate(self._objects(*given))
        self._tasks.setTaskContext(self.context)
        try:
            packer.init(0, iterators)
            yield packer
        finally:
            self._tasks.unset()
            self.context.markTaskCompleted(getattr(getattr(jvm.scala, "None$"), "MODULE$"))
            for address in self._allocated:
                self._platform.freeMemory(address)

    def _generate(self, references: Any) -> Any:
        return _method(self._compiled, "generate").invoke(self._compiled, self._objects(references))

    def _row(self, row: Row) -> Any:
        value, micros, key = (*row, None)[:3]
        generic = self._expressions.GenericInternalRow(3)
        generic.setLong(0, micros)
        generic.update(1, self._column(value))
        generic.update(2, self._column(key))
        if self._kind in ("generic", "string"):
            return generic
        unsafe = self._apply.invoke(self._unsafe, self._objects(generic)).copy()
        if self._kind == "off heap":
            size = unsafe.getSizeInBytes()
            self._allocated.append(self._platform.allocateMemory(size))
            unsafe.writeToMemory(None, self._allocated[-1])
            unsafe.pointTo(None, self._allocated[-1], size)
        return unsafe

    def _column(self, given: bytes | None) -> Any:
        if given is None or self._kind != "string":
            return given
        return self._jvm.org.apache.spark.unsafe.types.UTF8String.fromBytes(given)

    def _texts(self) -> Any:
        if self.destination is None:
            return None
        made = self._gateway.new_array(self._jvm.java.lang.String, len(self.destination))
        for index, text in enumerate(self.destination):
            made[index] = text
        return made

    def _objects(self, *values: Any) -> Any:
        made = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made


def _method(generated: Any, name: str) -> Any:
    """By reflection: py4j takes classes of one name for one; all that Spark generates are."""
    methods = generated.getClass().getSuperclass().getDeclaredMethods()
    [found] = [each for each in methods if each.getName() == name and not each.isBridge()]
    return found


def _values(row: Any) -> tuple[Any, ...]:
    return (
        bytes(row.getBinary(0)),
        row.getInt(1),
        row.getLong(2),
        row.getLong(3),
        row.getInt(4),
        row.getLong(5),
    )
