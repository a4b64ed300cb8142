"""Rows of any DataFrame <-> the records of a topic.

Owns: ``to_records`` and ``from_records``, in JSON (one row per record) and in Arrow (many rows per
record).  Must not know clusters or topics: it only changes DataFrames, also over Spark Connect.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from sparklog.errors import ConfigError, DecodeError

Format = Literal["json", "arrow"]
Batches = Iterator[pa.RecordBatch]

#: Rows of one Arrow record, unless they have more bytes than ``ARROW_RECORD_BYTES``.
ARROW_RECORD_ROWS: Final = 1000
#: Half of the largest batch that a topic takes by default (``max.message.bytes``).
ARROW_RECORD_BYTES: Final = 512 * 1024
#: Limits of the sample from which the schema of JSON records is learnt: the number of records, and
#: the number of their characters all together.
LEARN_RECORDS: Final = 100
LEARN_CHARACTERS: Final = 1024 * 1024

#: Spark's default pattern has milliseconds, but Spark's timestamps have microseconds.
_JSON_OPTIONS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def to_records(
    frame: DataFrame,
    *,
    key: str | Column | None = None,
    topic: str | Column | None = None,
    partition: str | Column | None = None,
    timestamp: str | Column | None = None,
    format: Format = "json",
) -> DataFrame:
    """Turn the rows of any DataFrame into records that ``format("sparklog")`` can write.

    All columns of ``frame`` go into the column ``value`` of the result, also the columns that
    become ``key``, ``topic``, ``partition`` and ``timestamp``.

    Args:
        frame: The rows.
        key: The column, or its name, that becomes the record's key.  A key is written as binary
            when it is binary, as JSON when it has fields, and else as text.
        topic: The column, or its name, that names the record's topic.
        partition: The column, or its name, that gives the record's partition.
        timestamp: The column, or its name, that becomes the record's timestamp.  Default: the time
            of arrival.
        format: ``json``: one record per row, a JSON object without nulls.  ``arrow``: up to 1,000
            rows per record, as an Arrow IPC stream, which is smaller and faster, keeps every type,
            and is read by ``from_records``, Arrow and pandas.  Arrow records have no key, topic,
            partition or timestamp of their own, and need pandas on the driver
            (``pip install 'sparklog[arrow]'``).

    Returns:
        A DataFrame with the column ``value`` and a column for each argument that was given.

    Raises:
        ConfigError: The format is unknown, does not allow the arguments, or lacks pandas.
    """
    own = {"key": key, "topic": topic, "partition": partition, "timestamp": timestamp}
    given = {name: column for name, column in own.items() if column is not None}
    if format == "arrow":
        if given:
            raise ConfigError(
                f"{', '.join(given)}: an Arrow record holds many rows, and so has none; "
                "leave it out, or use format='json'"
            )
        _require_pandas()
        return frame.mapInArrow(_to_arrow, "value binary")
    _check_format(format)
    columns = [_own_column(frame, name, column).alias(name) for name, column in given.items()]
    return frame.select(*columns, f.to_json(f.struct("*"), _JSON_OPTIONS).alias("value"))


def from_records(
    records: DataFrame,
    schema: StructType | str | None = None,
    *,
    format: Format = "json",
    keep: Sequence[str] = (),
    mode: str = "PERMISSIVE",
) -> DataFrame:
    """Turn records back into the rows that ``to_records``, or any writer of JSON objects, wrote.

    Args:
        records: A DataFrame of records, with the column ``value``.
        schema: The columns of the rows, as a StructType or DDL (``"id bigint, name string"``).
            Default: the schema is learnt, which costs a query, from the first Arrow record, or from
            up to 100 JSON objects (at most 1 MiB of them, but at least one).  A field that none of
            these objects has, for instance because it is null in all of them, is not found.
        format: The format that ``to_records`` was given.
        keep: Columns of the records (``offset``, ``timestamp``, ``key`` ...) that come first in
            every row.
        mode: Spark's mode for JSON.  PERMISSIVE gives nulls for values that do not fit the schema,
            FAILFAST fails.

    Returns:
        A DataFrame with the columns of ``keep``, then those of the schema.

    Raises:
        ConfigError: The format is unknown or lacks pandas, the schema cannot be learnt or is not
            one of columns, or a column of ``keep`` has a name that the rows have too.
    """
    _check_format(format)
    fields = _schema(records, schema, format)
    twice = sorted(set(keep) & set(fields.names))
    if twice:
        raise ConfigError(f"the rows have a column {twice[0]} too: rename the record's before")
    if format == "arrow":
        _require_pandas()
        kept = records.select(*keep, "value")
        whole = StructType([*kept.select(*keep).schema.fields, *fields.fields])
        return kept.mapInArrow(_from_arrow(tuple(keep), fields), whole)
    parsed = f.from_json(f.col("value").cast("string"), fields, {"mode": mode})
    return records.select(*keep, parsed.alias("value")).select(*keep, "value.*")


def _own_column(frame: DataFrame, name: str, column: str | Column) -> Column:
    found = frame[column] if isinstance(column, str) else column
    if name == "key":
        kind = frame.select(found).schema.fields[0].dataType
        if isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
            return f.to_json(found, _JSON_OPTIONS)
        return found if kind.typeName() == "binary" else found.cast("string")
    return found.cast("int") if name == "partition" else found


def _schema(records: DataFrame, schema: StructType | str | None, format: Format) -> StructType:
    if isinstance(schema, str):
        parsed = DataType.fromDDL(schema)
        if not isinstance(parsed, StructType):
            raise ConfigError(f"schema {schema!r} is not one of columns, such as 'id bigint'")
        return parsed
    if schema is not None:
        return schema
    found = records.where("value IS NOT NULL").select(f.col("value").cast("binary"))
    values = [bytes(row.value) for row in found.head(1 if format == "arrow" else LEARN_RECORDS)]
    if not values:
        raise ConfigError("there is no record to learn the schema from: give schema=...")
    if format == "arrow":
        return from_arrow_schema(_table(values[0]).schema)
    return _inferred_schema(records, [value.decode("utf-8", errors="replace") for value in values])


def _inferred_schema(records: DataFrame, texts: Sequence[str]) -> StructType:
    """The common schema that Spark infers from all JSON objects; other values are ignored."""
    objects: list[str] = []
    size = 0
    for text in texts:
        if _is_object(text):
            objects.append(text)
            size += len(text)
        if size > LEARN_CHARACTERS:
            break
    if not objects:
        raise ConfigError(
            f"the first record is no JSON object but {texts[0][:80]!r}: give schema=..."
        )
    array = f.lit(f"[{','.join(objects)}]")
    told = records.sparkSession.range(1).select(f.schema_of_json(array)).head()
    assert told is not None
    found = DataType.fromDDL(told[0])
    assert isinstance(found, ArrayType)
    assert isinstance(found.elementType, StructType)
    return found.elementType


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _check_format(format: str) -> None:
    if format not in ("json", "arrow"):
        raise ConfigError(f"format={format!r}: expected json or arrow")


def _require_pandas() -> None:
    """PySpark refuses ``mapInArrow`` without pandas, although Arrow batches need none."""
    if find_spec("pandas") is None:
        raise ConfigError(
            "format='arrow' needs pandas, because PySpark's mapInArrow asks for it: "
            "pip install 'sparklog[arrow]'"
        )


def _to_arrow(batches: Batches) -> Batches:
    for batch in batches:
        rows = max(1, min(ARROW_RECORD_ROWS, _rows_within(batch, ARROW_RECORD_BYTES)))
        values = []
        for start in range(0, batch.num_rows, rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch.slice(start, rows))
            values.append(sink.getvalue().to_pybytes())
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def _rows_within(batch: pa.RecordBatch, size: int) -> int:
    found: int = size * batch.num_rows // max(batch.nbytes, 1)
    return found


def _from_arrow(keep: tuple[str, ...], fields: StructType) -> Callable[[Batches], Batches]:
    def rows(batches: Batches) -> Batches:
        schema = to_arrow_schema(fields, timezone="UTC")
        for batch in batches:
            for index, value in enumerate(batch.column("value")):
                if not value.is_valid:
                    continue
                table = _cast(_table(value.as_py()), schema)
                for part in table.to_batches():
                    again = pa.repeat(index, part.num_rows)
                    kept = [batch.column(name).take(again) for name in keep]
                    names = [*keep, *schema.names]
                    yield pa.RecordBatch.from_arrays([*kept, *part.columns], names)

    return rows


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ConfigError(
            f"a record has no column {missing[0]}, but {', '.join(table.column_names)}"
        )
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"a record does not fit the schema: {error}") from error


def _table(value: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(value) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise DecodeError(
            f"a value is no Arrow IPC stream ({error}); is it format='json'?"
        ) from error
