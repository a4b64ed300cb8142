"""``format("sparklog")``: what Spark instantiates.

Owns: the entry points that Spark calls, each a few lines.  Must not know the client or the wire.

Spark calls them in processes of its own, several per query; each pays for what it imports, so that
readers and writers are imported where they are made.
"""

import json
import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparklog.dataframe.discovery import find_bootstrap_servers
from sparklog.dataframe.options import (
    BOOTSTRAP_OPTIONS,
    OWN_SCAN_OPTION,
    PACKED_OPTION,
    ReadOptions,
    is_two_way,
    parse_read_options,
    parse_write_options,
    table_hint,
)
from sparklog.dataframe.schema import check_read_schema, check_write_schema, read_schema
from sparklog.dataframe.worker_process import plain_errors, settle_process
from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.dataframe.read import TopicReader

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class SparklogDataSource(DataSource):
    """Options and columns are those of Spark's Kafka source; see the README."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        """Also where Spark hears at ``load()`` of options that are wrong."""
        settle_process()
        with plain_errors():
            return read_schema(self._read_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        with plain_errors():
            options = self._read_options()
            check_read_schema(schema)
        return _reader_class(OWN_SCAN_OPTION in self.options)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plain_errors():
            return self._writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's)
        """Spark's runner needs a reader, whose first call it then hands the error of."""
        from sparklog.dataframe.streams import RefusedStreamReader

        return RefusedStreamReader()

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from sparklog.dataframe.streams import no_stream_writes

        with plain_errors():
            raise no_stream_writes()

    def _writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode('append') or INSERT INTO")
        from sparklog.dataframe.write import PackedTopicWriter, TopicWriter

        settle_process()
        options = parse_write_options(self.options, self._found_bootstrap())
        packed = self.options.get(PACKED_OPTION)
        if packed is None:
            two_way, hint = is_two_way(self.options), table_hint(self.options)
            check_write_schema(schema, options.topic, two_way=two_way, hint=hint)
            return TopicWriter(options)
        check_write_schema(StructType.fromJson(json.loads(packed)), options.topic)
        return PackedTopicWriter(options)

    def _read_options(self) -> ReadOptions:
        return parse_read_options(self.options, self._found_bootstrap())

    def _found_bootstrap(self) -> str | None:
        given = any(name in self.options for name in BOOTSTRAP_OPTIONS)
        return None if given else find_bootstrap_servers()


def _reader_class(own_scan: bool) -> "type[TopicReader]":
    """Filters are used only by a scan that does not share its plan with others.

    Spark refuses a reader with ``pushFilters`` where its pushdown switch is off.  The switch itself
    cannot be seen from here; that Spark plans with pushdown shows in the worker module that it
    runs.
    """
    from sparklog.dataframe.read import PushdownTopicReader, TopicReader

    pushing = own_scan and _PUSHDOWN_WORKER in sys.modules
    return PushdownTopicReader if pushing else TopicReader
