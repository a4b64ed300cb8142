"""A producer of single records: it collects records into batches and sends the batches in order.

Owns: partitioning, batching, sequence numbers and delivery.  Must not know Arrow or Spark: bulk
writers encode their own batches and use ``DataClient``.

Each partition has at most one batch in flight, so retries cannot change the order.  Every batch of
an idempotent producer carries the partition's producer id and next sequence number.  When it is
unknown at the deadline whether a batch was written, the partition moves to a new producer id; in a
transaction, the transaction can only be aborted.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from typing import Self

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import ACKS_ALL, DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.groups import GroupIdentity, OffsetAndMetadata
from sparklog.client.partitioner import partition_of_key
from sparklog.client.producer_batches import Batch, BatchQueue, Delivered, Headers, record_size
from sparklog.client.producer_options import ProducerOptions
from sparklog.client.producer_sequences import (
    NOT_IDEMPOTENT,
    BatchIdentity,
    ProducerIdentity,
    ProducerSequences,
)
from sparklog.client.transactions import ProducerTransaction, aborted_error, unfinished_error
from sparklog.errors import ClosedError, ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

logger = logging.getLogger(__name__)


class Producer:
    """Sends records; ``flush`` waits for all of them.

    With a ``transactional_id``: ``init_transactions`` once, then ``transaction`` for each
    transaction, or ``begin_transaction`` and ``commit_transaction``.
    """

    def __init__(self, cluster: ClusterClient, options: ProducerOptions | None = None) -> None:
        self.options = options or ProducerOptions()
        self._cluster = cluster
        self._data_client = DataClient(cluster)
        self._queues: dict[TopicPartition, BatchQueue] = {}
        self._identity: asyncio.Task[ProducerIdentity] | None = None
        self._sequences = ProducerSequences()
        self._sticky: dict[str, int] = {}
        self._buffered_bytes = 0
        self._space = asyncio.Condition()
        self._flushing = 0
        self._failure: Exception | None = None
        self._closed = False
        self._transaction: ProducerTransaction | None = None
        if self.options.transactional_id is not None:
            self._transaction = ProducerTransaction(
                cluster, self.options.transactional_id, self.options.transaction_timeout_ms
            )

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

        A transactional producer raises KafkaError outside of a transaction; a record that cannot be
        sent lets the transaction fail.
        """
        if self._closed:
            raise ClosedError("the producer is closed; make a new one")
        transaction = self._transaction
        if transaction is not None:
            transaction.manager.check_open("send")
        try:
            if partition is None:
                tp = await self._partition(topic, key)
            else:
                tp = TopicPartition(topic, partition)
            record = Record(
                key=key,
                value=value,
                timestamp=self._cluster.runtime.wall_ms() if timestamp is None else timestamp,
                headers=tuple(headers),
            )
            size_bytes = record_size(record)
            await self._reserve(size_bytes)
        except Exception as error:
            if transaction is not None:
                transaction.manager.batch_failed(error)
            raise
        if transaction is not None:
            await self._check_still_open(transaction, size_bytes)
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
        """Flush and stop; an open transaction is aborted.  The cluster client stays open."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._end_all(timeout_s)
        finally:
            senders = self._senders()
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            if self._transaction is not None:
                await self._transaction.close()

    async def _end_all(self, timeout_s: float | None) -> None:
        transaction = self._transaction
        if transaction is None or not transaction.manager.can_abort:
            await self.flush(timeout_s)
            return
        try:
            await self.abort_transaction(timeout_s)
        except SparklogError as error:  # the coordinator aborts it, at its timeout at the latest
            logger.warning("an open transaction was not aborted at the close: %s", error)

    def _senders(self) -> "list[asyncio.Task[None]]":
        for queue in self._queues.values():
            queue.hurry.set()
        return [queue.sender for queue in self._queues.values() if queue.sender is not None]

    # transactions

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Take over the transactional id: producers that had it before are fenced, and what they
        left open is aborted.  Call this once, before the first transaction.

        Raises KafkaError; after REQUEST_TIMED_OUT the call may be repeated.
        """
        await self._usable_transaction().initialize(self._deadline(timeout_s))

    def begin_transaction(self) -> None:
        """Begin a transaction; nothing is sent yet.  Raises KafkaError."""
        self._usable_transaction().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: GroupIdentity,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of a group if and only if the transaction is committed.

        ``offsets`` are the next ones to read, ``group_metadata`` is ``Consumer.group_metadata()``.
        Raises KafkaError: TRANSACTION_ABORTABLE when the group has rebalanced.
        """
        transaction, deadline = self._usable_transaction(), self._deadline(timeout_s)
        await transaction.send_offsets(offsets, group_metadata, deadline)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Send what is queued, and let all records and offsets become visible.

        Raises KafkaError: TRANSACTION_ABORTABLE when a record was not written, so that the
        transaction can only be aborted; REQUEST_TIMED_OUT when the outcome is unknown, and the call
        may be repeated; PRODUCER_FENCED when another producer has taken over.
        """
        transaction, deadline = self._usable_transaction(), self._deadline(timeout_s)
        transaction.manager.begin_commit()
        await self._finish_sending("commit_transaction", deadline)
        await transaction.commit(deadline)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """End the transaction without its records and offsets; what is queued is not sent.

        Raises KafkaError: REQUEST_TIMED_OUT, after which the call may be repeated.
        """
        transaction, deadline = self._transactional, self._deadline(timeout_s)
        transaction.manager.begin_abort()
        await self._drop_queued(aborted_error(transaction.transactional_id))
        await self._finish_sending("abort_transaction", deadline)
        await transaction.abort(deadline)

    def check_in_transaction(self) -> None:
        """Raises KafkaError unless a record may be sent; for any thread."""
        self._transactional.manager.check_open("send")

    def fail_transaction(self, error: BaseException) -> None:
        """Records of an open transaction are lost, so that it can only be aborted."""
        if self._transaction is not None:
            self._transaction.manager.batch_failed(error)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction that is committed at the end of the block, and aborted by an exception.

        A transaction that cannot be committed is aborted before the error is raised.  When the
        outcome of the commit is unknown, ``commit_transaction`` may be repeated.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            await self.leave_transaction(error)
            raise
        await self.leave_transaction(None)

    async def leave_transaction(self, error: BaseException | None) -> None:
        """The end of a ``transaction`` block, which ``error`` has ended unless it is None."""
        manager = self._transactional.manager
        try:
            if error is None and manager.is_open:
                await self.commit_transaction()
        except Exception as refusal:
            await self._abort_after(refusal)
            raise
        if error is not None:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        if not self._transactional.manager.can_abort:
            return
        try:
            await self.abort_transaction()
        except SparklogError as refusal:
            error.add_note(f"The transaction was not aborted: {refusal}")

    async def _finish_sending(self, call: str, deadline: Deadline) -> None:
        """Wait for the batches; what has failed is in the state of the transaction."""
        try:
            await self.flush(deadline.left_s)
        except TimeoutError as error:
            text = "records are still being sent"
            raise unfinished_error(self._transactional.transactional_id, call, text) from error
        except Exception as error:
            self._transactional.manager.batch_failed(error)

    async def _drop_queued(self, error: KafkaError) -> None:
        for queue in self._queues.values():
            for batch in queue.batches:
                batch.fail(error)
                await self._release(batch.size_bytes)
            queue.batches.clear()

    async def _check_still_open(self, transaction: ProducerTransaction, size_bytes: int) -> None:
        """The transaction may have ended while a record waited for space."""
        try:
            transaction.manager.check_open("send")
        except KafkaError:
            await self._release(size_bytes)
            raise

    def _usable_transaction(self) -> ProducerTransaction:
        """Raises ClosedError after ``close``, KafkaError for a producer without transactions."""
        if self._closed:
            raise ClosedError("the producer is closed; make a new one")
        return self._transactional

    @property
    def _transactional(self) -> ProducerTransaction:
        if self._transaction is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                "this producer has no transactions; make one with a transactional_id",
            )
        return self._transaction

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline(self.options.delivery_timeout_s if timeout_s is None else timeout_s)

    # queues

    async def _partition(self, topic: str, key: bytes | None) -> TopicPartition:
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
            queue = self._queues[tp] = BatchQueue()
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.size_bytes + size_bytes > self.options.batch_bytes:
            if batch is not None:
                queue.hurry.set()
                self._sticky[tp.topic] = self._sticky.get(tp.topic, 0) + 1
            batch = Batch()
            queue.batches.append(batch)
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.size_bytes += size_bytes
        if queue.sender is None:
            queue.sender = asyncio.ensure_future(self._drain(tp, queue))
        return future

    # delivery

    async def _drain(self, tp: TopicPartition, queue: BatchQueue) -> None:
        try:
            while queue.batches:
                if len(queue.batches) == 1 and not self._flushing:
                    await self._linger(queue)
                queue.hurry.clear()
                if not queue.batches:  # an abort has dropped them
                    break
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

    async def _linger(self, queue: BatchQueue) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.linger_ms / 1000):
                await queue.hurry.wait()

    async def _release(self, size_bytes: int) -> None:
        self._buffered_bytes -= size_bytes
        async with self._space:
            self._space.notify_all()

    async def _deliver(self, tp: TopicPartition, queue: BatchQueue, batch: Batch) -> None:
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
        self, tp: TopicPartition, queue: BatchQueue, batch: Batch
    ) -> tuple[Batch, ...]:
        """Send one batch.  Returns: its halves if these must be sent instead."""
        options, transaction = self.options, self._transaction
        sends: Counter[TopicPartition] = Counter()
        try:
            produced = await self._data_client.produce(
                tp,
                [await self._encode(tp, queue, batch)],
                acks=options.acks,
                timeout_s=options.delivery_timeout_s,
                create=options.create_topics,
                sends=sends,
                transactional_id=options.transactional_id,
                version_max=None if transaction is None else transaction.produce_version_max,
            )
        except SparklogError as error:
            if transaction is None:
                # It may be unknown whether the batch was written: do not reuse its sequences.
                self._sequences.forget(tp)
                queue.shares_identity = False
            if _is_too_large(error) and len(batch.records) > 1 and sends[tp] == 1:
                # As in Java's producer: one record that is too large does not fail the others.
                # An earlier request may have been written while the topic allowed larger batches.
                return batch.halves()
            self._fail(batch, error)
        else:
            if transaction is not None:
                transaction.manager.delivered(tp, len(batch.records))
            elif self._idempotent:
                self._sequences.advance(tp, len(batch.records))
            batch.succeed(tp, produced)
        return ()

    async def _encode(self, tp: TopicPartition, queue: BatchQueue, batch: Batch) -> bytes:
        return encode_batch(
            batch.records,
            compression=self.options.compression,
            transactional=self._transaction is not None,
            **await self._next_identity(tp, queue),
        )

    async def _next_identity(self, tp: TopicPartition, queue: BatchQueue) -> BatchIdentity:
        if self._transaction is not None:
            return await self._transaction.next_batch(tp, self.options.delivery_timeout_s)
        if not self._idempotent:
            return NOT_IDEMPOTENT
        if tp not in self._sequences:
            self._sequences.start(tp, await self._new_identity(shared=queue.shares_identity))
        return self._sequences.next_batch(tp)

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

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._failure = self._failure or error
        if self._transaction is not None:
            self._transaction.manager.batch_failed(error)
        batch.fail(error)


def _is_too_large(error: SparklogError) -> bool:
    """Whether the leader refused a batch for its size, which means that it was not written."""
    return isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE


def _has_failed(task: "asyncio.Task[ProducerIdentity]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
