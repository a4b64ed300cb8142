"""What Spark pickles for a write: one instance per task, and one that commits.

Owns: the task's loop over groups of rows, and its report.  Must not know options' texts, nor how
rows travel.  Spark commits in a process of its own, which needs no client: what a task needs is
imported in the task.
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
from sparklog.dataframe.worker_process import plain_errors, settle_process
from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.dataframe.write.sender import Sender

#: Arrow bytes that are collected before they are routed and encoded.
GROUP_BYTES = 8 * 1024 * 1024


@dataclass
class RowsWritten(WriterCommitMessage):
    """What a task reports: rows that were acknowledged."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """One instance is pickled into every task.

    A task is one producer: what it sends twice after a lost answer is stored once.  A task that
    Spark runs again is another producer, so its rows are stored again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle_process()
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
        """Every row was acknowledged when its task ended; there is nothing left to do."""
        settle_process()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks wrote before the failure stays: a log has no undo without transactions."""


class PackedTopicWriter(TopicWriter):
    """The same for rows that come as pieces of packed records, as far as the JVM did not send them.

    Where it sent them all, no connection is needed here.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from sparklog.dataframe.write.packed_records import packed_batch

        settle_process()
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
    """Raises ConfigError for rows that bring what only the log gives."""
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
    """The rows in tables of about ``GROUP_BYTES``."""
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
