"""Columns of reads and writes, and their types.

Owns: names and types (as in Spark's Kafka source), and the checks of a user's schema and of the
columns of a DataFrame that is written.  Must not know the client.
"""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.config import nearest
from sparklog.errors import ConfigError

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_READ_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
#: Columns that can be null: Spark would return wrong results for a schema that denies nulls.
_NULLABLE = frozenset({"key", "value", "headers"})
#: Columns whose values come from the log.  Rows of an INSERT have nulls in these columns.
LOG_COLUMNS: Final = ("offset", "timestampType")
_TEXT = (StringType(), BinaryType())
_WRITE_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "headers": (_HEADERS,),
}


def read_schema(include_headers: bool) -> StructType:
    """The schema of ``load()`` without a user schema."""
    names = [name for name in _READ_TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, _READ_TYPES[name]) for name in names])


def check_read_schema(schema: StructType) -> None:
    """Check a user schema: a projection of our columns with our types.  Raises ConfigError."""
    for field in schema.fields:
        if field.name not in _READ_TYPES:
            raise ConfigError(
                f"unknown column {field.name!r} in the schema{_hint(field.name, _READ_TYPES)}; "
                f"a read has {', '.join(_READ_TYPES)}"
            )
        expected = _READ_TYPES[field.name]
        if _plain(field.dataType) != _plain(expected):
            raise ConfigError(
                f"column {field.name} is {expected.simpleString()}, "
                f"not {field.dataType.simpleString()}; cast it after the read"
            )
        if field.name in _NULLABLE and not field.nullable:
            raise ConfigError(f"column {field.name} may hold nulls: leave NOT NULL out")


def check_write_schema(
    schema: StructType, topic_option: str | None, *, two_way: bool = False, hint: str = ""
) -> None:
    """Raises ConfigError naming the column and the remedy, before anything is written.

    With ``two_way``, the rows are for a view that also reads.  Then an INSERT fills missing columns
    with nulls, so the rows have the columns of a read; see ``LOG_COLUMNS``.  ``hint`` is appended
    to the message about a missing topic.
    """
    for field in schema.fields:
        if two_way and field.name in LOG_COLUMNS:
            continue
        if field.name not in _WRITE_TYPES:
            raise ConfigError(
                f"unknown column {field.name!r}{_hint(field.name, _WRITE_TYPES)}; "
                f"a write takes {', '.join(_WRITE_TYPES)}: select or rename, "
                "or let sparklog.to_records(frame) make records of all columns"
            )
        if not _is_writable(field):
            expected = " or ".join(kind.simpleString() for kind in _WRITE_TYPES[field.name])
            raise ConfigError(
                f"column {field.name} must be {expected}, "
                f"not {field.dataType.simpleString()}: cast it"
            )
    names = schema.fieldNames()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"there are {names.count(twice)} columns {twice}: keep one")
    if "value" not in names:
        raise ConfigError("the column value is missing: a record needs one (it may be null)")
    if topic_option is None and "topic" not in names:
        raise ConfigError(f"no topic: give option('topic', NAME) or a column topic{hint}")


def _is_writable(field: StructField) -> bool:
    if field.name == "headers":
        return _plain(field.dataType) == _plain(_HEADERS)
    # Strings of every collation are stored as the same bytes.
    return isinstance(field.dataType, tuple(type(kind) for kind in _WRITE_TYPES[field.name]))


def _plain(kind: DataType) -> str:
    """The type without its nullability."""
    return kind.simpleString()


def _hint(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""
