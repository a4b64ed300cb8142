"""The data source ``format("sparklog")``, which Spark instantiates.

Owns: the entry points that Spark calls; each has a few lines.  Must not know the client or the
wire.

Spark calls them in processes of its own, several per query.  Each process pays for its imports, so
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
from sparklog.dataframe.worker_process import freeze_imported_objects, plain_errors
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
        """The schema of a read; raises errors in options already at ``load()``."""
        freeze_imported_objects()
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
        """A reader whose methods raise: Spark's runner reports the error of the first call."""
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

        freeze_imported_objects()
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
    """The reader class: with filters only for a scan that does not share its plan.

    Spark refuses a reader with ``pushFilters`` where its pushdown switch is off.  The switch itself
    is not visible here, but the worker module that Spark runs shows whether it is on.
    """
    from sparklog.dataframe.read import PushdownTopicReader, TopicReader

    pushing = own_scan and _PUSHDOWN_WORKER in sys.modules
    return PushdownTopicReader if pushing else TopicReader
