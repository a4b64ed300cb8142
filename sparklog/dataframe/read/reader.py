"""Readers of topics: ranges of offsets as Arrow batches, inside Spark's tasks.

Owns: passing the plan to tasks, and the schema of the Arrow batches: rows, or record batches where
the JVM makes the rows (``packed_reads``).  Must not know the texts of options or the bytes of a
batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.dataframe.clients import borrowed_client
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.jvm import BOUNDS, GIVE_BATCHES, GIVE_ROWS
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.pushdown import Narrowing, narrowing
from sparklog.dataframe.read.range_reader import read_range
from sparklog.dataframe.read.read_planner import plan_read
from sparklog.dataframe.worker_process import freeze_imported_objects, plain_errors
from sparklog.wire.records.batch import Buffer, read_header
from sparklog.wire.records.columns import decode_columns
from sparklog.wire.records.plain_batches import plain_batches
from sparklog.wire.records.spans import binary_from

#: Columns that are the same for every record of a range.
_CONSTANT = ("topic", "partition")


class RangePartition(InputPartition):
    """The input of one task: a range (None if there is nothing to read) and how to read it."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)
        self.gives = GIVE_ROWS


class TopicReader(DataSourceReader):
    """Plans on the driver's side, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.read_schema = schema
        self.narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        freeze_imported_objects()
        with plain_errors(), _client(self.options) as client:
            ranges = client.run(plan_read(client.data_client, self.options, self.narrowing))
        return [RangePartition(item) for item in ranges or (None,)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imported_objects()
        item: OffsetRange | None = partition.value
        if item is None:
            return
        assert isinstance(partition, RangePartition)
        schema = to_arrow_schema(self.read_schema, timezone="UTC")
        give = self._batches if partition.gives == GIVE_BATCHES else self._rows
        with plain_errors():
            yield from give(item, schema)

    def _rows(self, item: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        columns = frozenset(schema.names) - set(_CONSTANT)
        shape = _Shape(schema, item)
        corrupt = self._corrupt_batches(item)
        with _client(self.options) as client:
            for start, fetched in read_range(client, item, self.options, corrupt):
                for batch in decode_columns(
                    fetched.records,
                    start_offset=start,
                    end_offset=item.end,
                    columns=columns,
                    aborted=fetched.aborted,
                    min_timestamp=item.min_timestamp_ms,
                    check_crc=not fetched.crc_checked,
                    on_fault=corrupt.skip_or_raise,
                    believe_counts=corrupt.fail,
                ):
                    yield shape.apply(batch)
        corrupt.log_skipped()

    def _batches(self, item: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Record batches for ``record_unpacker``, in a column of bytes; other columns are null."""
        carrier = _Carrier(schema)
        told = False
        corrupt = self._corrupt_batches(item)
        with _client(self.options) as client:
            for start, fetched in read_range(client, item, self.options, corrupt):
                if not told or read_header(fetched.records).base_offset < start:
                    told = True
                    yield carrier.bounds(item, start)
                for pieces in plain_batches(
                    fetched.records,
                    start_offset=start,
                    end_offset=item.end,
                    aborted=fetched.aborted,
                    min_timestamp=item.min_timestamp_ms,
                    check_crc=not fetched.crc_checked,
                    on_fault=corrupt.skip_or_raise,
                ):
                    yield carrier.carry(pieces.data, pieces.edges)

    def _corrupt_batches(self, item: OffsetRange) -> CorruptBatches:
        fail = self.options.fail_on_corrupt_batch
        return CorruptBatches(item.topic_partition, item.start, item.end, fail=fail)


class _Carrier:
    """Makes Arrow batches with a scan's schema that carry record batches instead of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        #: The last column of bytes, where the JVM looks.
        self._column = max(i for i, kind in enumerate(schema.types) if kind == pa.binary())

    def bounds(self, item: OffsetRange, start: int) -> pa.RecordBatch:
        """The row that describes the records that follow and the wanted offsets."""
        tp = item.topic_partition
        data = BOUNDS.pack(start, item.end, tp.partition) + tp.topic.encode()
        return self.carry(data, (0, 0, len(data)))

    def carry(self, data: Buffer, edges: Sequence[int]) -> pa.RecordBatch:
        """A row for each piece of the data, without a copy."""
        carried = binary_from(memoryview(data), np.array(edges, np.int32))
        arrays = [
            carried if index == self._column else pa.nulls(len(carried), kind)
            for index, kind in enumerate(self._schema.types)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class PushdownTopicReader(TopicReader):
    """A reader that uses filters; all of them are also returned to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.narrowing = narrowing(filters)
        return filters


class _Shape:
    """Completes decoded columns to the schema that Spark expects."""

    def __init__(self, schema: pa.Schema, item: OffsetRange) -> None:
        self._schema = schema
        self._values = {
            "topic": pa.scalar(item.topic_partition.topic, pa.string()),
            "partition": pa.scalar(item.topic_partition.partition, pa.int32()),
        }
        self._repeated: dict[str, Any] = {}

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        arrays = [
            self._constant(name, rows) if name in _CONSTANT else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, rows: int) -> Any:
        """A slice of the longest array of the value that was made so far."""
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._values[name], rows)
        return known if len(known) == rows else known.slice(0, rows)


def _client(options: ReadOptions) -> AbstractContextManager[BlockingDataClient]:
    timeout_s = options.poll_timeout_ms / 1000
    return borrowed_client(
        options.bootstrap, options.client_id, timeout_s, "kafkaConsumer.pollTimeoutMs", options.rack
    )
