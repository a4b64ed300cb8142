"""``format("sparklog")``: what Spark instantiates.

Owns: the entry points that Spark calls, each a few lines.  Must not know the client or the wire.
"""

import sys

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from sparklog.dataframe.discovery import find_bootstrap_servers
from sparklog.dataframe.options import BOOTSTRAP_OPTIONS, parse_read_options, parse_write_options
from sparklog.dataframe.reader import PushdownTopicReader, TopicReader
from sparklog.dataframe.schema import check_read_schema, check_write_schema, read_schema
from sparklog.dataframe.writer import TopicWriter
from sparklog.errors import ConfigError

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class SparklogDataSource(DataSource):
    """Options and columns are those of Spark's Kafka source; see the README."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        return read_schema(self.options.get("includeHeaders", "false").strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options, self._found_bootstrap())
        check_read_schema(schema)
        return _reader_class()(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode('append')")
        options = parse_write_options(self.options, self._found_bootstrap())
        return TopicWriter(options, check_write_schema(schema, options.topic))

    def _found_bootstrap(self) -> str | None:
        given = any(name in self.options for name in BOOTSTRAP_OPTIONS)
        return None if given else find_bootstrap_servers()


def _reader_class() -> type[TopicReader]:
    """Spark refuses a reader with ``pushFilters`` where its pushdown switch is off.

    The switch itself cannot be seen from here; that Spark plans with pushdown shows in the worker
    module that it runs.
    """
    return PushdownTopicReader if _PUSHDOWN_WORKER in sys.modules else TopicReader
