"""Arrow sources and sinks that do nothing: the ceiling that PySpark itself sets.

The source yields one prepared batch with the schema of ``format("sparklog")``, over and over.  The
sink takes batches and counts their rows.

Owns: that source and sink.  Must not know how they are measured.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


class NoopSource(DataSource):
    """Has the options ``rows`` (in all), ``partitions``, ``batch`` (rows) and ``size`` (bytes)."""

    @classmethod
    def name(cls) -> str:
        return "noop-arrow"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> "NoopReader":
        options = {
            name: int(self.options[name]) for name in ("rows", "partitions", "batch", "size")
        }
        return NoopReader(**options)

    def writer(self, schema: StructType, overwrite: bool) -> "NoopWriter":
        return NoopWriter()


class NoopReader(DataSourceReader):
    def __init__(self, rows: int, partitions: int, batch: int, size: int) -> None:
        self.rows, self.count, self.batch, self.size = rows, partitions, batch, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        whole = record_batch(self.batch, self.size, partition.value)
        left = self.rows // self.count
        while left > 0:
            yield whole.slice(0, min(left, self.batch))
            left -= self.batch


class NoopWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


def record_batch(rows: int, size: int, partition: int) -> pa.RecordBatch:
    moment = pa.scalar(datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(rows, pa.binary()),
            pa.repeat(pa.scalar(b"v" * size, pa.binary()), rows),
            pa.repeat(pa.scalar("topic"), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.array(range(rows), pa.int64()),
            pa.repeat(moment, rows),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
        ],
        names=[column.split()[0] for column in SCHEMA.split(", ")],
    )
