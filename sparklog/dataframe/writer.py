"""Writes Arrow batches into topics, inside Spark's tasks.

Owns: the grouping of rows, sequences of the task's idempotent producer, and the bound on what is in
flight.  Must not know options' texts or the bytes of a batch.

A task is one producer: what it sends twice after a lost answer is stored once.  A task that Spark
runs again is another producer, so its rows are stored again.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparklog.client.blocking import BlockingClient
from sparklog.client.raw import Produced, ProducerIdentity, value_or_raise
from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.routing import Router, split_by_topic
from sparklog.dataframe.schema import WriteColumns
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TopicPartition,
)
from sparklog.wire.batch import add_sequence
from sparklog.wire.columns import EncodedBatch, encode_columns

#: Arrow bytes that are collected before they are routed and encoded.
GROUP_BYTES = 8 * 1024 * 1024

Sends = dict[TopicPartition, list[EncodedBatch]]
Answers = dict[TopicPartition, Produced | KafkaError]


@dataclass
class RowsWritten(WriterCommitMessage):
    """What a task reports: rows that were acknowledged."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """One instance is pickled into every task."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self.options = options
        self.columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = 0
        sender: _Sender | None = None
        try:
            for group in _groups(iterator):
                sender = sender or _Sender(self.options)
                sender.send(group)
                rows += group.num_rows
            if sender:
                sender.finish()
        finally:
            if sender:
                sender.close()
        return RowsWritten(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row was acknowledged when its task ended; there is nothing left to do."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks wrote before the failure stays: a log has no undo without transactions."""


class _Sender:
    """One task's producer.  At most one request per partition is in flight."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._timeout_s = options.delivery_timeout_ms / 1000
        self._client = BlockingClient(
            options.bootstrap, client_id=options.client_id, timeout_s=self._timeout_s
        )
        self._routers: dict[str, Router] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._identity: ProducerIdentity | None = None
        self._pending: Future[None] | None = None

    def send(self, group: pa.Table) -> None:
        """Route and encode a group while the one before travels, then let it follow."""
        if self._options.idempotent and self._identity is None:
            self._identity = self._client.init_producer_id()
        sends: Sends = {}
        for topic, rows in self._by_topic(group):
            for piece in self._router(topic).route(rows):
                tp = TopicPartition(topic, piece.partition)
                sends.setdefault(tp, []).extend(self._encode(tp, piece.rows))
        self.finish()
        self._pending = self._client.submit(self._produce(sends))

    def finish(self) -> None:
        """Wait until everything sent was acknowledged.  Raises KafkaError."""
        pending, self._pending = self._pending, None
        if pending:
            self._client.result(pending)

    def close(self) -> None:
        if self._pending:
            self._pending.cancel()
        self._client.close()

    def _by_topic(self, group: pa.Table) -> list[tuple[str, pa.Table]]:
        if self._options.topic is not None:
            return [(self._options.topic, group)]
        return split_by_topic(group)

    def _router(self, topic: str) -> Router:
        router = self._routers.get(topic)
        if router is None:
            found = self._client.topic(topic, create=True)
            router = Router(topic, len(found.partitions), first_run=os.getpid())
            self._routers[topic] = router
        return router

    def _encode(self, tp: TopicPartition, rows: pa.Table) -> list[EncodedBatch]:
        identity = self._identity
        sequence = self._sequences.get(tp, 0) if identity else NO_SEQUENCE
        batches = encode_columns(
            *(_column(rows, name) for name in ("key", "value", "timestamp", "headers")),
            compression=self._options.compression,
            target_batch_bytes=self._options.batch_bytes,
            default_timestamp=time.time_ns() // 1_000_000,
            producer_id=identity.producer_id if identity else NO_PRODUCER_ID,
            producer_epoch=identity.producer_epoch if identity else NO_PRODUCER_EPOCH,
            base_sequence=sequence,
        )
        if identity:
            self._sequences[tp] = add_sequence(sequence, rows.num_rows)
        return batches

    async def _produce(self, sends: Sends) -> None:
        """Batch after batch of each partition, all partitions at once."""
        for number in range(max((len(batches) for batches in sends.values()), default=0)):
            turn = {tp: batches[number] for tp, batches in sends.items() if number < len(batches)}
            answers = await self._client.raw.produce_each(
                {tp: [batch.data] for tp, batch in turn.items()},
                acks=self._options.acks,
                timeout_s=self._timeout_s,
            )
            for tp, answer in answers.items():
                _check(tp, answer, turn[tp])


def _check(tp: TopicPartition, answer: Produced | KafkaError, batch: EncodedBatch) -> None:
    if isinstance(answer, KafkaError) and answer.code is ErrorCode.MESSAGE_TOO_LARGE:
        raise KafkaError(
            answer.code,
            f"a batch of {batch.record_count} records and {len(batch.data)} bytes for {tp} exceeds "
            "the topic's max.message.bytes: raise that, or lower option kafka.batch.size",
        )
    value_or_raise(tp, answer)


def _groups(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray | None:
    return rows.column(name) if name in rows.column_names else None
