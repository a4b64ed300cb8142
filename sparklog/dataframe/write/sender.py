"""The producer of one task, from rows to acknowledged batches.

Owns: partitioning and encoding groups of rows, the sequence numbers of the idempotent producer, and
the bound on bytes in flight.  Must not know Spark, options' texts, the bytes of a batch, or the
content of one request.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import pyarrow as pa

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.partition_results import value_or_raise
from sparklog.client.produce_api import Produced
from sparklog.client.producer_sequences import (
    NOT_IDEMPOTENT,
    BatchIdentity,
    ProducerIdentity,
    ProducerSequences,
)
from sparklog.dataframe.clients import borrowed_client
from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.write.packed_records import Handover, PackedBatch, PackedRecords, rows_of
from sparklog.dataframe.write.request_batcher import RequestBatcher
from sparklog.dataframe.write.row_partitioner import RowPartitioner, split_by_topic
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.types import MAX_INT32, NO_NODE, TopicPartition
from sparklog.wire.records.columns import EncodedBatch, encode_columns, encode_section

log = logging.getLogger(__name__)

#: Encoded bytes that are passed to the client's loop at once and awaited together.
SUBMITTED_BYTES: Final = 1024 * 1024
#: The time during which pieces that the JVM sent without success may be sent again.  Later, brokers
#: may have forgotten the producer (``producer.id.expiration.ms``) and would store records twice.
UNANSWERED_MS_MAX: Final = 3_600_000
#: Time limit for finding out a topic's largest batch.
LOOK_SECONDS_MAX = 10.0


@contextmanager
def sender(options: WriteOptions) -> "Iterator[Sender]":
    """A task's producer; at the end of the block all batches are acknowledged.

    Raises KafkaError.
    """
    timeout_s = options.delivery_timeout_ms / 1000
    with borrowed_client(
        options.bootstrap, options.client_id, timeout_s, "kafka.delivery.timeout.ms"
    ) as client:
        found = Sender(options, client)
        try:
            yield found
            found.finish()
        except BaseException:
            found.cancel()
            raise


class Sender:
    """One task's producer; ``RequestBatcher`` makes the requests."""

    def __init__(self, options: WriteOptions, client: BlockingDataClient) -> None:
        self._options = options
        self._client = client
        self._partitioners: dict[str, RowPartitioner] = {}
        #: The largest batch of each topic in bytes, and the topic id at the start of the write.
        self._sizes: dict[str, int] = {}
        self._topic_ids: dict[str, UUID | None] = {}
        self._sequences = ProducerSequences()
        self._identity: ProducerIdentity | None = None
        #: The number of pieces to come that the JVM sent without success, and the time of the
        #: first send.
        self._pieces_left = 0
        self._sent_since_ms = 0
        #: Unfinished deliveries, oldest first, and their bytes.
        self._pending: deque[tuple[Future[None], int]] = deque()
        self._in_flight_bytes = 0
        self._batcher = RequestBatcher(self._produce, self._leader_of)

    def send(self, group: pa.Table) -> None:
        """Partition and encode a group of rows, and send it behind the batches in flight.

        Raises KafkaError for batches sent before, and ConfigError and KafkaError for rows without
        a valid topic or partition, before any row of the group is sent.
        """
        self._identify()
        routed = [
            (TopicPartition(topic, piece.partition), piece.rows)
            for topic, rows in self._by_topic(group)
            for piece in self._partitioner_of(topic).partition(rows)
        ]
        encoded = [(tp, self._encode(tp, rows)) for tp, rows in routed]
        self._submit_all(encoded)

    def send_packed(self, batch: PackedBatch) -> None:
        """Send pieces of packed records; pieces without a partition go to the partitions in turn.

        After a handover, this sender continues as the JVM's idempotent producer.

        Raises KafkaError as ``send`` does, and for a topic that was created again.
        """
        topic = self._options.topic
        assert topic is not None
        if batch.handover is not None:
            self._take_over(topic, batch.handover)
        self._identify()
        partitioner = self._partitioner_of(topic)
        encoded: list[tuple[TopicPartition, list[EncodedBatch]]] = []
        for piece in batch.pieces:
            if self._pieces_left:
                self._pieces_left -= 1
                self._check_may_be_sent_again(topic)
            if not piece.by_key:
                number = (
                    partitioner.next_partition() if piece.partition is None else piece.partition
                )
                tp = TopicPartition(topic, number)
                encoded.append((tp, self._encode_packed(tp, piece)))
        by_key = [rows_of(piece) for piece in batch.pieces if piece.by_key]
        for part in partitioner.partition(pa.concat_tables(by_key)) if by_key else ():
            tp = TopicPartition(topic, part.partition)
            encoded.append((tp, self._encode(tp, part.rows)))
        self._submit_all(encoded)

    def _take_over(self, topic: str, handover: Handover) -> None:
        self._pieces_left = handover.pieces_left
        self._sent_since_ms = handover.since_ms
        self._identity = ProducerIdentity(
            producer_id=handover.producer_id, producer_epoch=handover.producer_epoch
        )
        for partition, sequence in enumerate(handover.sequences):
            self._sequences.start(TopicPartition(topic, partition), self._identity, sequence)
        self._partitioner_of(topic, create=False)
        if self._topic_ids[topic] != handover.topic_id:
            raise _created_again(topic)

    def _check_may_be_sent_again(self, topic: str) -> None:
        """Refuse pieces that were sent too long ago; a task's rows may pause at any point."""
        waited_ms = time.time_ns() // 1_000_000 - self._sent_since_ms
        if waited_ms > UNANSWERED_MS_MAX:
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"what was sent to topic {topic!r} {waited_ms / 60_000:.0f} minutes ago, before "
                "the rows of this task paused, was not acknowledged: whether it was written is "
                "not known; write again",
            )

    def finish(self, at_most_bytes: int = 0) -> None:
        """Wait until at most ``at_most_bytes`` bytes are in flight.  Raises KafkaError."""
        while self._pending and self._in_flight_bytes > at_most_bytes:
            delivery, size = self._pending[0]
            self._client.result(delivery)
            self._pending.popleft()
            self._in_flight_bytes -= size

    def cancel(self) -> None:
        """Give up unacknowledged batches."""
        if self._pending:
            self._client.call(self._batcher.cancel)

    def _identify(self) -> None:
        if self._options.idempotent and self._identity is None:
            self._identity = self._client.init_producer_id()

    def _by_topic(self, group: pa.Table) -> list[tuple[str, pa.Table]]:
        if self._options.topic is not None:
            return [(self._options.topic, group)]
        return split_by_topic(group)

    def _partitioner_of(self, topic: str, *, create: bool = True) -> RowPartitioner:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            found = self._client.topic(topic, create=create)
            partitioner = RowPartitioner(
                topic,
                len(found.partitions),
                first_run=random.randrange(2**16),
                partitioner=self._options.partitioner,
            )
            self._partitioners[topic] = partitioner
            self._topic_ids[topic] = found.topic_id
            self._sizes[topic] = self._client.run(_largest_batch(self._client.cluster, topic))
        return partitioner

    def _encode(self, tp: TopicPartition, rows: pa.Table) -> list[EncodedBatch]:
        return encode_columns(
            *(_column(rows, name) for name in ("key", "value", "timestamp", "headers")),
            compression=self._options.compression,
            target_batch_bytes=min(self._options.batch_bytes, self._sizes[tp.topic]),
            default_timestamp=time.time_ns() // 1_000_000,
            **self._numbered(tp, rows.num_rows),
        )

    def _encode_packed(self, tp: TopicPartition, piece: PackedRecords) -> list[EncodedBatch]:
        if piece.record_count > 1 and piece.batch_bytes > self._sizes[tp.topic]:
            return self._encode(tp, rows_of(piece))
        batch = encode_section(
            piece.records,
            record_count=piece.record_count,
            base_timestamp=piece.base_timestamp,
            max_timestamp=piece.max_timestamp,
            compression=self._options.compression,
            **self._numbered(tp, piece.record_count),
        )
        return [batch]

    def _numbered(self, tp: TopicPartition, rows: int) -> BatchIdentity:
        """The producer identity and the sequence number of the next rows of a partition."""
        if self._identity is None:
            return NOT_IDEMPOTENT
        if tp not in self._sequences:
            self._sequences.start(tp, self._identity)
        numbered = self._sequences.next_batch(tp)
        self._sequences.advance(tp, rows)
        return numbered

    def _submit_all(self, encoded: Sequence[tuple[TopicPartition, list[EncodedBatch]]]) -> None:
        for tp, batches in encoded:
            _check_sizes(tp, batches, self._sizes[tp.topic])
        enough = min(SUBMITTED_BYTES, self._options.buffer_bytes)
        together: list[tuple[TopicPartition, list[EncodedBatch]]] = []
        size = 0
        for tp, batches in encoded:
            together.append((tp, batches))
            size += sum(batch.size for batch in batches)
            if size >= enough:
                self._submit(together, size)
                together, size = [], 0
        if together:
            self._submit(together, size)

    def _submit(self, batches: list[tuple[TopicPartition, list[EncodedBatch]]], size: int) -> None:
        delivery: Future[None] = Future()
        self._client.call(self._batcher.deliver, batches, delivery)
        self._pending.append((delivery, size))
        self._in_flight_bytes += size
        self.finish(self._options.buffer_bytes)

    def _leader_of(self, tp: TopicPartition) -> int:
        leader = self._client.cluster.view.leader(tp)
        return NO_NODE if leader is None else leader.leader

    async def _produce(self, group: Mapping[TopicPartition, EncodedBatch]) -> None:
        answers = await self._client.data_client.produce_each(
            {tp: batch.parts for tp, batch in group.items()},
            acks=self._options.acks,
            timeout_s=self._client.timeout_s,
        )
        for tp, batch in group.items():
            _check(tp, answers[tp], batch)
        for topic in {tp.topic for tp in group}:
            view = self._client.cluster.view.topics.get(topic)
            if view is not None and view.topic_id != self._topic_ids[topic]:
                raise _created_again(topic)


async def _largest_batch(cluster: ClusterClient, topic: str) -> int:
    """A topic's ``max.message.bytes``; if unknown, the leader refuses too large batches."""
    from sparklog.client.admin import Admin

    try:
        told = await Admin(cluster, timeout_s=LOOK_SECONDS_MAX).describe_topic_configs(topic)
        return int(told["max.message.bytes"].value or MAX_INT32)
    except (KafkaError, ConnectError, KeyError) as error:
        log.info("the largest batch of %s is not known: %s", topic, error)
        return MAX_INT32


def _check_sizes(tp: TopicPartition, batches: Iterable[EncodedBatch], limit: int) -> None:
    for batch in batches:
        if batch.size > limit:
            raise _too_large(tp, batch)


def _created_again(topic: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"topic {topic!r} was deleted and created again during the write: "
        "what was written before is gone; write again",
    )


def _too_large(tp: TopicPartition, batch: EncodedBatch) -> KafkaError:
    many = batch.record_count > 1
    what = f"a batch of {batch.record_count} records" if many else "a record"
    remedy = ", or lower option kafka.batch.size" if many else ""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{what} ({batch.size} bytes) for {tp} exceeds the topic's max.message.bytes: "
        f"raise that{remedy}",
    )


def _check(tp: TopicPartition, answer: Produced | KafkaError, batch: EncodedBatch) -> None:
    if isinstance(answer, KafkaError) and answer.code is ErrorCode.MESSAGE_TOO_LARGE:
        raise _too_large(tp, batch)
    value_or_raise(tp, answer)


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray | None:
    return rows.column(name) if name in rows.column_names else None
