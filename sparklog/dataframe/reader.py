"""Reads ranges of offsets as Arrow batches, inside Spark's tasks.

Owns: the plan's way to the tasks, prefetching, and the shape of the batches.  Must not know the
texts of options or the bytes of a batch.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.blocking_data import BlockingDataClient
from sparklog.client.deadline import Deadline
from sparklog.client.raw import Fetched
from sparklog.dataframe.clients import borrowed_client
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.plan import OffsetRange
from sparklog.dataframe.planning import plan_read
from sparklog.dataframe.pushdown import timestamp_lower_bound_ms
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.columns import decode_columns, next_offset

#: What a range's first fetch asks for: how large its records are is not known yet.
FIRST_FETCH_BYTES = 1024 * 1024
#: What every later fetch asks for at least.
FETCH_BYTES_MIN = 64 * 1024

#: Columns that are the same for every record of a range.
_CONSTANT = ("topic", "partition")


class TopicReader(DataSourceReader):
    """Plans on the driver's side, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.read_schema = schema
        self.lower_bound_ms: int | None = None

    def partitions(self) -> list[InputPartition]:
        with _client(self.options) as client:
            planning = plan_read(client.raw, self.options, self.lower_bound_ms)
            ranges = client.run(planning)
        return [InputPartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # Spark's own: no partition was planned
        item: OffsetRange = partition.value
        schema = to_arrow_schema(self.read_schema, timezone="UTC")
        columns = frozenset(schema.names) - set(_CONSTANT)
        shape = _Shape(schema, item)
        with _client(self.options) as client:
            for fetched in _Fetches(client, item, self.options):
                for batch in decode_columns(
                    fetched.records,
                    start_offset=item.start,
                    end_offset=item.end,
                    columns=columns or frozenset({"offset"}),
                    aborted=fetched.aborted,
                    min_timestamp=item.min_timestamp_ms,
                ):
                    yield shape.apply(batch)


class PushdownTopicReader(TopicReader):
    """Uses filters on ``timestamp``; all of them also go back to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.lower_bound_ms = timestamp_lower_bound_ms(filters)
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
        """A slice of the longest run of the value that was needed so far."""
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._values[name], rows)
        return known if len(known) == rows else known.slice(0, rows)


def _client(options: ReadOptions) -> AbstractContextManager[BlockingDataClient]:
    return borrowed_client(options.bootstrap, options.client_id, options.poll_timeout_ms / 1000)


class _Fetches:
    """The raw batches of a range; the next fetch is in flight while one is decoded."""

    def __init__(self, client: BlockingDataClient, item: OffsetRange, options: ReadOptions) -> None:
        self._client = client
        self._range = item
        self._bytes_max = options.fetch_max_bytes
        self._bytes = min(FIRST_FETCH_BYTES, options.fetch_max_bytes)
        self._pending = self._fetch(item.start)

    def __iter__(self) -> Iterator[Fetched]:
        offset = self._range.start
        patience = Deadline(self._client.timeout_s)
        try:
            while True:
                fetched = self._take(offset)
                after = next_offset(fetched.records)
                if after is None:
                    _check_held(self._range, offset, fetched, patience)
                    self._pending = self._fetch(offset)
                    continue
                self._adapt(len(fetched.records), after - offset, self._range.end - after)
                offset = after
                if offset >= self._range.end:
                    yield fetched
                    return
                self._pending = self._fetch(offset)
                yield fetched
                patience = Deadline(self._client.timeout_s)
        finally:
            self._pending.cancel()

    def _take(self, offset: int) -> Fetched:
        try:
            return self._client.result(self._pending)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            item = self._range
            raise KafkaError(
                error.code,
                f"{item.topic_partition} no longer has offset {offset} of the planned range "
                f"[{item.start}, {item.end}): its records were deleted after the read was planned, "
                "by retention or on purpose, or the topic was created again",
            ) from None

    def _adapt(self, size: int, offsets: int, left: int) -> None:
        """Ask for what is left, as far as can be told: bytes behind the range are for nothing."""
        expected = left * size // offsets
        self._bytes = min(expected + expected // 8 + FETCH_BYTES_MIN, self._bytes_max)

    def _fetch(self, offset: int) -> "Future[Fetched]":
        return self._client.submit(
            self._client.raw.fetch(
                self._range.topic_partition,
                offset,
                max_bytes=self._bytes,
                timeout_s=self._client.timeout_s,
            )
        )


def _check_held(item: OffsetRange, offset: int, fetched: Fetched, patience: Deadline) -> None:
    """An empty answer: a leader that has less than the plan saw must not be waited for."""
    if patience.expired:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{item.topic_partition} gave no records from offset {offset} in time; "
            "option kafkaConsumer.pollTimeoutMs says how long a task waits",
        )
    if fetched.last_stable_offset < min(offset + 1, item.end):
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{item.topic_partition} ends at {fetched.last_stable_offset}, before offset {offset} "
            f"of the planned range [{item.start}, {item.end}): records were lost, or the topic was "
            "deleted and created again",
        )
