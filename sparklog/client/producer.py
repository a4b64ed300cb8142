"""A producer of single records: it collects records into batches and sends the batches in order.

Owns: partitioning, batching, sequence numbers and delivery.  Must not know Arrow or Spark: bulk
writers encode their own batches and use ``DataClient``.

Each partition has at most one batch in flight, so retries cannot change the order.  Every batch of
an idempotent producer carries the partition's producer id and next sequence number.  When it is
unknown at the deadline whether a batch was written, the partition moves to a new producer id.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import ACKS_ALL, DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.partitioner import partition_of_key
from sparklog.client.produce_api import Produced
from sparklog.client.producer_sequences import NOT_IDEMPOTENT, ProducerIdentity, ProducerSequences
from sparklog.errors import ClosedError, ErrorCode, KafkaError, SparklogError
from sparklog.types import (
    NO_OFFSET,
    NO_TIMESTAMP,
    Compression,
    TopicPartition,
)
from sparklog.wire.records.builder import Record, encode_batch

Headers = Sequence[tuple[str, bytes | None]]

#: Bytes of a record in a batch besides key, value and headers, roughly.
_RECORD_OVERHEAD: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Where a record was written; offset -1 when the broker did not say."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer.

    ``acks`` is 0, 1 or -1 (all).  Idempotence needs -1 and is off otherwise.
    """

    acks: int = ACKS_ALL
    idempotent: bool = True
    compression: Compression = Compression.NONE
    linger_ms: int = 5
    batch_bytes: int = 128 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_s: float = 60.0
    create_topics: bool = True


@dataclass(slots=True)
class _Batch:
    records: list[Record] = field(default_factory=list)
    futures: "list[asyncio.Future[Delivered]]" = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True)
class _Queue:
    """The batches that wait for one partition.  The last batch is open for more records."""

    batches: deque[_Batch] = field(default_factory=deque)
    sender: "asyncio.Task[None] | None" = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    shares_identity: bool = True


class Producer:
    """Sends records; ``flush`` waits for all of them."""

    def __init__(self, cluster: ClusterClient, options: ProducerOptions | None = None) -> None:
        self.options = options or ProducerOptions()
        self._cluster = cluster
        self._data_client = DataClient(cluster)
        self._queues: dict[TopicPartition, _Queue] = {}
        self._identity: asyncio.Task[ProducerIdentity] | None = None
        self._sequences = ProducerSequences()
        self._sticky: dict[str, int] = {}
        self._buffered_bytes = 0
        self._space = asyncio.Condition()
        self._flushing = 0
        self._failure: Exception | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[Delivered]":
        """Queue a record; the future gives its place in the log, or raises KafkaError.

        A record with a key goes to the partition that Java's producer chooses.  Records without a
        key stay on a partition until a batch is full.  Waits while ``buffer_bytes`` are queued.
        """
        if self._closed:
            raise ClosedError("the producer is closed; make a new one")
        tp = await self._partition(topic, key, partition)
        record = Record(
            key=key,
            value=value,
            timestamp=self._cluster.runtime.wall_ms() if timestamp is None else timestamp,
            headers=tuple(headers),
        )
        size_bytes = _record_size(record)
        await self._reserve(size_bytes)
        return self._append(tp, record, size_bytes)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record that was sent is delivered or has failed.

        Raises the first failure since the last flush, or TimeoutError when time is up.
        """
        self._flushing += 1
        try:
            async with asyncio.timeout(timeout_s):
                while senders := self._senders():
                    await asyncio.wait(senders)
        finally:
            self._flushing -= 1
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and stop.  The cluster client stays open."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush(timeout_s)
        finally:
            senders = self._senders()
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)

    def _senders(self) -> "list[asyncio.Task[None]]":
        for queue in self._queues.values():
            queue.hurry.set()
        return [queue.sender for queue in self._queues.values() if queue.sender is not None]

    # queues

    async def _partition(
        self, topic: str, key: bytes | None, partition: int | None
    ) -> TopicPartition:
        if partition is not None:
            return TopicPartition(topic, partition)
        deadline = Deadline(self.options.delivery_timeout_s)
        view = await self._cluster.topic(topic, deadline, create=self.options.create_topics)
        count = len(view.partitions)
        if key is not None:
            return TopicPartition(topic, partition_of_key(key, count))
        return TopicPartition(topic, self._sticky.setdefault(topic, 0) % count)

    async def _reserve(self, size_bytes: int) -> None:
        def fits() -> bool:
            full = self._buffered_bytes + size_bytes > self.options.buffer_bytes
            return not full or not self._buffered_bytes

        if not fits():
            self._senders()  # batches are sent without lingering
            async with self._space:
                await self._space.wait_for(fits)
        self._buffered_bytes += size_bytes

    def _append(
        self, tp: TopicPartition, record: Record, size_bytes: int
    ) -> "asyncio.Future[Delivered]":
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _Queue()
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.size_bytes + size_bytes > self.options.batch_bytes:
            if batch is not None:
                queue.hurry.set()
                self._sticky[tp.topic] = self._sticky.get(tp.topic, 0) + 1
            batch = _Batch()
            queue.batches.append(batch)
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.size_bytes += size_bytes
        if queue.sender is None:
            queue.sender = asyncio.ensure_future(self._drain(tp, queue))
        return future

    # delivery

    async def _drain(self, tp: TopicPartition, queue: _Queue) -> None:
        try:
            while queue.batches:
                if len(queue.batches) == 1 and not self._flushing:
                    await self._linger(queue)
                queue.hurry.clear()
                batch = queue.batches.popleft()
                try:
                    await self._deliver(tp, queue, batch)
                finally:
                    await self._release(batch.size_bytes)
        except asyncio.CancelledError:
            for batch in queue.batches:
                self._fail(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{tp}: not sent"))
            raise
        finally:
            queue.sender = None

    async def _linger(self, queue: _Queue) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.linger_ms / 1000):
                await queue.hurry.wait()

    async def _release(self, size_bytes: int) -> None:
        self._buffered_bytes -= size_bytes
        async with self._space:
            self._space.notify_all()

    async def _deliver(self, tp: TopicPartition, queue: _Queue, batch: _Batch) -> None:
        """Send a batch, in halves if the leader refuses it as too large.  Every future of the batch
        is done afterwards, also after a cancellation."""
        parts = deque((batch,))
        try:
            while parts:
                halves = await self._send_batch(tp, queue, parts[0])
                parts.popleft()
                parts.extendleft(reversed(halves))
        except asyncio.CancelledError:
            for part in parts:
                self._fail(part, KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{tp}: fate unknown"))
            raise
        except Exception as error:  # such as a record that is not of bytes
            for part in parts:
                self._fail(part, error)

    async def _send_batch(
        self, tp: TopicPartition, queue: _Queue, batch: _Batch
    ) -> tuple[_Batch, ...]:
        """Send one batch.  Returns: its halves if these must be sent instead."""
        options = self.options
        sends: Counter[TopicPartition] = Counter()
        try:
            produced = await self._data_client.produce(
                tp,
                [await self._encode(tp, queue, batch)],
                acks=options.acks,
                timeout_s=options.delivery_timeout_s,
                create=options.create_topics,
                sends=sends,
            )
        except SparklogError as error:
            # It may be unknown whether the batch was written: do not reuse its sequence numbers.
            self._sequences.forget(tp)
            queue.shares_identity = False
            if _is_too_large(error) and len(batch.records) > 1 and sends[tp] == 1:
                # As in Java's producer: one record that is too large does not fail the others.
                # An earlier request may have been written while the topic allowed larger batches.
                return _halves(batch)
            self._fail(batch, error)
        else:
            if self._idempotent:
                self._sequences.advance(tp, len(batch.records))
            self._succeed(tp, batch, produced)
        return ()

    async def _encode(self, tp: TopicPartition, queue: _Queue, batch: _Batch) -> bytes:
        identity = NOT_IDEMPOTENT
        if self._idempotent:
            if tp not in self._sequences:
                self._sequences.start(tp, await self._new_identity(shared=queue.shares_identity))
            identity = self._sequences.next_batch(tp)
        return encode_batch(batch.records, compression=self.options.compression, **identity)

    @property
    def _idempotent(self) -> bool:
        return self.options.idempotent and self.options.acks == ACKS_ALL

    async def _new_identity(self, *, shared: bool) -> ProducerIdentity:
        """A shared identity for all partitions; a partition that lost its sequence gets its own."""
        if not shared:
            return await self._data_client.init_producer_id(
                timeout_s=self.options.delivery_timeout_s
            )
        if self._identity is None or _has_failed(self._identity):
            self._identity = asyncio.ensure_future(self._new_identity(shared=False))
        return await asyncio.shield(self._identity)

    def _fail(self, batch: _Batch, error: Exception) -> None:
        self._failure = self._failure or error
        for future in batch.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # flush reports the error, so asyncio need not log it

    def _succeed(self, tp: TopicPartition, batch: _Batch, produced: Produced) -> None:
        known = produced.base_offset >= 0
        for index, (record, future) in enumerate(zip(batch.records, batch.futures, strict=True)):
            if not future.done():
                future.set_result(
                    Delivered(
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=produced.base_offset + index if known else NO_OFFSET,
                        timestamp=(
                            record.timestamp
                            if produced.log_append_time == NO_TIMESTAMP
                            else produced.log_append_time
                        ),
                    )
                )


def _is_too_large(error: SparklogError) -> bool:
    """Whether the leader refused a batch for its size, which means that it was not written."""
    return isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE


def _halves(batch: _Batch) -> tuple[_Batch, _Batch]:
    """The first and second half of a batch; the batch keeps the reserved bytes of both."""
    middle = len(batch.records) // 2
    return (
        _Batch(records=batch.records[:middle], futures=batch.futures[:middle]),
        _Batch(records=batch.records[middle:], futures=batch.futures[middle:]),
    )


def _record_size(record: Record) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 4 for name, value in record.headers)


def _has_failed(task: "asyncio.Task[ProducerIdentity]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
