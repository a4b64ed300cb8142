"""Fetched records as one Arrow record batch, with the columns of Spark's Kafka source.

Owns: the schema, and the join of many partitions into one batch.  Must not know how records are
fetched, nor Spark.  This is the only module of the consumers that imports pyarrow.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from sparklog.client.fetched_records import FetchedRecords, SkippedRecords, fault_handler
from sparklog.wire.records.columns import COLUMN_TYPES, decode_columns

_NAMES: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_TYPES: Final[dict[str, Any]] = {**COLUMN_TYPES, "topic": pa.string(), "partition": pa.int32()}


def arrow_schema(*, headers: bool = False) -> Any:
    """The schema of ``arrow_batch``: names and types of Spark's Kafka source."""
    names = (*_NAMES, "headers") if headers else _NAMES
    return pa.schema([(name, _TYPES[name]) for name in names])


def arrow_batch(
    parts: Sequence[FetchedRecords], skipped: SkippedRecords | None, *, headers: bool = False
) -> Any:
    """The records of all parts, as a ``pyarrow.RecordBatch``.

    ``skipped`` counts records that cannot be read; with None they raise CorruptBatchError.
    """
    schema = arrow_schema(headers=headers)
    batches = [batch for part in parts for batch in _batches(part, skipped, schema)]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches, schema=schema).combine_chunks().to_batches()
    return whole


def _batches(part: FetchedRecords, skipped: SkippedRecords | None, schema: Any) -> Iterable[Any]:
    tp, start = part.topic_partition, part.taken_until
    for batch in decode_columns(
        part.fetched.records,
        start_offset=start,
        end_offset=part.end,
        columns=frozenset(schema.names) & COLUMN_TYPES.keys(),
        aborted=part.fetched.aborted,
        on_fault=fault_handler(tp, start, part.end, skipped),
    ):
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["topic"] = pa.repeat(pa.scalar(tp.topic, pa.string()), batch.num_rows)
        columns["partition"] = pa.repeat(pa.scalar(tp.partition, pa.int32()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
