"""What Spark pickles for a write: one instance per task, and one that commits.

Owns: the task's loop over groups of rows, and its report.  Must not know options' texts, nor how
rows travel.  Spark commits in a process of its own, which needs no client: what a task needs is
imported in the task.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.worker_process import settle_process

if TYPE_CHECKING:
    from sparklog.dataframe.sender import Sender

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
        from sparklog.dataframe.sender import sender

        settle_process()
        waiting = self._groups(iterator)
        first = next(waiting, None)
        if first is None:
            return RowsWritten(0)
        rows = 0
        with sender(self.options) as sending:
            for group in chain((first,), waiting):
                rows += self._send(sending, group)
        return RowsWritten(rows)

    def _groups(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        """What is routed and sent at a time, none of it empty."""
        return groups(iterator)

    def _send(self, sending: "Sender", group: Any) -> int:
        """The rows of the group."""
        sending.send(group)
        return int(group.num_rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row was acknowledged when its task ended; there is nothing left to do."""
        settle_process()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks wrote before the failure stays: a log has no undo without transactions."""


class PackedTopicWriter(TopicWriter):
    """The same for rows that come as pieces of packed records."""

    def _groups(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        return (batch for batch in iterator if batch.num_rows)

    def _send(self, sending: "Sender", group: Any) -> int:
        from sparklog.dataframe.packed_records import packed_records

        pieces = list(packed_records(group))
        sending.send_packed(pieces)
        return sum(piece.record_count for piece in pieces)


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
