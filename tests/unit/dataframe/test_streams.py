"""The errors in place of streams."""

import inspect
import os

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.dataframe.source import SparklogDataSource
from sparklog.errors import ConfigError

SCHEMA = StructType([StructField("value", BinaryType())])


def test_a_stream_reader_refuses_every_question_and_can_be_stopped() -> None:
    """Spark's runner fails on its own where there is no reader to stop."""
    reader = SparklogDataSource({"subscribe": "t"}).streamReader(SCHEMA)
    assert isinstance(reader, DataSourceStreamReader)
    for name, arguments in (
        ("initialOffset", ()),
        ("latestOffset", ()),
        ("partitions", ({}, {})),
        ("read", (None,)),
    ):
        with pytest.raises(ConfigError, match="no streaming reads yet: read in batches"):
            getattr(reader, name)(*arguments)
    assert not inspect.signature(
        reader.latestOffset
    ).parameters  # Spark inspects the signature, too
    reader.stop()


def test_a_stream_writer_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(ConfigError, match=r"no streaming writes yet: .*foreachBatch"):
        SparklogDataSource({"topic": "t"}).streamWriter(SCHEMA, overwrite=False)
    assert "SPARK_HIDE_TRACEBACK" not in os.environ  # this is no process of Spark's
