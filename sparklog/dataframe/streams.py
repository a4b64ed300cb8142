"""Streams of topics, which are not supported yet: the errors in their place.

Owns: the errors of ``readStream`` and ``writeStream``, which name what to use instead.  Must not
know how a stream would be read or written.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparklog.dataframe.worker_process import plain_errors
from sparklog.errors import ConfigError


class RefusedStreamReader(DataSourceStreamReader):
    """A reader whose methods raise ConfigError, except ``stop``.

    Without a reader, Spark's runner would fail when it stops the reader, and report only that
    failure.
    """

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        _refuse()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        _refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        _refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        _refuse()


def no_stream_writes() -> ConfigError:
    """The error of ``writeStream``."""
    return ConfigError(
        "format('sparklog') has no streaming writes yet: write each micro-batch with "
        "writeStream.foreachBatch(lambda frame, _: cluster.write(frame, TOPIC))"
    )


def _refuse() -> NoReturn:
    with plain_errors():
        raise ConfigError(
            "format('sparklog') has no streaming reads yet: read in batches from where the last "
            "one ended, with cluster.read(TOPIC, startingOffsets=...)"
        )
