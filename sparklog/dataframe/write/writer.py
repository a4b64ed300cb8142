"""The writers that Spark pickles: one instance per task, and an instance that commits.

Owns: the task's loop over groups of rows, and its report.  Must not know options' texts, nor how
rows are sent.  Spark commits in a process of its own, which needs no client, so modules for tasks
are imported in the task.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.schema import LOG_COLUMNS
from sparklog.dataframe.worker_process import freeze_imported_objects, plain_errors
from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.dataframe.write.sender import Sender

#: Arrow bytes that are collected before they are partitioned and encoded.
GROUP_BYTES = 8 * 1024 * 1024


@dataclass
class RowsWritten(WriterCommitMessage):
    """The report of a task: the number of acknowledged rows."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """One instance is pickled into every task.

    A task is one producer: a batch that is sent again after a lost response is stored once.  A
    task that Spark runs again is another producer, so its rows are stored again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_imported_objects()
        waiting = groups(iterator)
        first = next(waiting, None)
        if first is None:
            return RowsWritten(0)
        rows = 0
        with plain_errors(), _sender(self.options) as sending:
            for group in chain((first,), waiting):
                _check_log_columns(group)
                sending.send(group)
                rows += group.num_rows
        return RowsWritten(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: every row was acknowledged when its task ended."""
        freeze_imported_objects()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: without transactions, rows written before the failure stay in the log."""


class PackedTopicWriter(TopicWriter):
    """A writer of pieces of packed records that the JVM did not send itself.

    The writer opens no connection when the JVM sent all pieces.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from sparklog.dataframe.write.packed_records import packed_batch

        freeze_imported_objects()
        records = 0
        with plain_errors(), ExitStack() as ending:
            sending: Sender | None = None
            for batch in map(packed_batch, iterator):
                records += batch.records
                if batch.handover is None and not batch.pieces:
                    continue
                if sending is None:
                    sending = ending.enter_context(_sender(self.options))
                sending.send_packed(batch)
        return RowsWritten(records)


def _check_log_columns(group: pa.Table) -> None:
    """Raises ConfigError for rows with values in columns that only the log fills."""
    for name in LOG_COLUMNS:
        if name in group.column_names and group.column(name).null_count < group.num_rows:
            raise ConfigError(
                f"the column {name} has values, and only the log gives them: name the columns to "
                "insert, as in INSERT INTO view (key, value) SELECT ..."
            )


def _sender(options: WriteOptions) -> "AbstractContextManager[Sender]":
    from sparklog.dataframe.write.sender import sender

    return sender(options)


def groups(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows as tables of about ``GROUP_BYTES`` bytes."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in iterator:
        if not batch.num_rows:
            continue
        batches.append(batch)
        size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)
