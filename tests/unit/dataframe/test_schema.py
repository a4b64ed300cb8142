"""Columns of reads and writes: accepted columns, and errors for other columns."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.dataframe.schema import check_read_schema, check_write_schema, read_schema
from sparklog.errors import ConfigError

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("include_headers", "columns"), [(False, COLUMNS), (True, COLUMNS | {"headers": HEADERS})]
)
def test_a_read_has_the_columns_of_sparks_kafka_source(
    include_headers: bool, columns: dict[str, DataType]
) -> None:
    assert read_schema(include_headers) == schema(**columns)


@pytest.mark.parametrize(
    "wanted",
    [
        schema(value=BinaryType()),
        schema(offset=LongType(), key=BinaryType()),
        schema(headers=HEADERS),
        StructType().add("offset", LongType(), nullable=False),
    ],
)
def test_a_user_schema_is_a_projection(wanted: StructType) -> None:
    check_read_schema(wanted)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            schema(vlaue=BinaryType()),
            "unknown column 'vlaue' in the schema (did you mean value?); a read has key, value, "
            "topic, partition, offset, timestamp, timestampType, headers",
        ),
        (
            schema(value=StringType()),
            "column value is binary, not string; cast it after the read",
        ),
        (
            StructType().add("key", BinaryType(), nullable=False),
            "column key may hold nulls: leave NOT NULL out",
        ),
        (
            schema(partition=LongType()),
            "column partition is int, not bigint; cast it after the read",
        ),
    ],
)
def test_a_wrong_user_schema_names_the_column_and_the_remedy(
    wanted: StructType, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_read_schema(wanted)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "topic"),
    [
        (schema(value=StringType()), "t"),
        (schema(value=BinaryType(), topic=StringType()), None),
        (
            schema(
                key=StringType(),
                value=StringType(),
                partition=IntegerType(),
                timestamp=TimestampType(),
                headers=HEADERS,
            ),
            "t",
        ),
        (StructType().add("value", StringType(), nullable=False), "t"),
    ],
)
def test_what_a_write_takes(given: StructType, topic: str | None) -> None:
    check_write_schema(given, topic)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            schema(key=StringType()),
            "the column value is missing: a record needs one (it may be null)",
        ),
        (schema(value=StringType()), "no topic: give option('topic', NAME) or a column topic"),
        (
            schema(value=StringType(), keys=StringType()),
            "unknown column 'keys' (did you mean key?); a write takes key, value, topic, "
            "partition, timestamp, headers: select or rename, or let "
            "sparklog.to_records(frame) make records of all columns",
        ),
        (
            schema(value=IntegerType()),
            "column value must be string or binary, not int: cast it",
        ),
        (
            schema(value=StringType(), key=NullType()),
            "column key must be string or binary, not void: cast it",
        ),
        (
            schema(value=StringType(), partition=LongType()),
            "column partition must be int, not bigint: cast it",
        ),
        (
            schema(value=StringType(), timestamp=TimestampNTZType()),
            "column timestamp must be timestamp, not timestamp_ntz: cast it",
        ),
        (
            schema(value=StringType(), headers=ArrayType(StringType())),
            "column headers must be array<struct<key:string,value:binary>>, not array<string>: "
            "cast it",
        ),
    ],
)
def test_a_wrong_write_schema_names_the_column_and_the_remedy(
    given: StructType, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_write_schema(given, None)
    assert str(caught.value) == message


def test_a_column_that_comes_twice_is_an_error() -> None:
    twice = StructType([StructField("value", StringType())] * 2)
    with pytest.raises(ConfigError, match="there are 2 columns value: keep one"):
        check_write_schema(twice, "t")


def test_rows_of_an_insert_have_the_columns_that_the_log_gives() -> None:
    rows = read_schema(include_headers=False)
    with pytest.raises(ConfigError, match=r"unknown column 'offset'"):
        check_write_schema(rows, "t")
    check_write_schema(rows, "t", two_way=True)
    with pytest.raises(ConfigError, match=r"no topic: .* or a column topic; and more"):
        check_write_schema(
            StructType([StructField("value", BinaryType())]), None, hint="; and more"
        )
