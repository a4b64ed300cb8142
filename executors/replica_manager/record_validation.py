"""The validation of records before a batch is appended.

Batches for topics with ``sparklog.validate.batches`` are decoded.  Records for compacted topics
must have keys (``LogValidator``).

Owns: the queue of such batches for each partition, in the order of their arrival, and the bounds
of memory and of work.  Must not know requests, or when a response is sent.

The records are decoded in worker threads; the event loop never decompresses.  Only the keys of a
few records are looked at in the event loop, which takes less time than the call of a thread.  As
long as a partition's queue holds a batch, every later batch of that partition goes through the
queue too, so a change of the setting does not change the order.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparklog.config import TopicConfig
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.executors.partition import Partition, read_client_batch
from sparklog.executors.replica_manager.batch_queues import (
    BatchQueue,
    BatchQueues,
    Outcome,
    OutcomeFuture,
    QueuedBatch,
    RequestTransaction,
    gone,
)
from sparklog.executors.replica_manager.transaction_verifications import TransactionVerifications
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.records.batch import Buffer
from sparklog.wire.records.few_records import first_keyless_of_few, has_few_records

if TYPE_CHECKING:
    from sparklog.executors.replica_manager.replica_manager import ReplicaManager

#: The value of the setting that asks for the validation.
RECORDS: Final = "records"
#: Batches whose records are decoded at the same time.
VALIDATIONS_AT_ONCE: Final = 2
#: Bytes of batches that wait, of all partitions; further batches are refused (retriable).  A larger
#: batch is taken when no other waits: it would be refused for ever.
QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class RecordValidations:
    """The batches of one broker that wait until their records are decoded."""

    def __init__(
        self, replica_manager: "ReplicaManager", verifications: TransactionVerifications
    ) -> None:
        self._replica_manager = replica_manager
        self._verifications = verifications
        self._queues: BatchQueues[Partition, QueuedBatch] = BatchQueues(
            self._validate_first, QUEUED_BYTES_MAX, _full
        )
        self._gate = asyncio.Semaphore(VALIDATIONS_AT_ONCE)
        self.refuse_waiting = self._queues.refuse_waiting

    def wants(self, partition: Partition) -> bool:
        """Whether the batches for this partition have to go through ``submit``."""
        config = partition.config
        return (
            config.sparklog_validate_batches == RECORDS
            or config.compacts
            or partition in self._queues
        )

    def submit(
        self,
        partition: Partition,
        records: Buffer | None,
        acks: int,
        transaction: RequestTransaction | None = None,
    ) -> OutcomeFuture:
        """Append the batch once its records are decoded.  The future is the batch's outcome.

        The bytes are copied.  Effects are carried out and the append is counted.  A batch whose
        future is cancelled before is not appended.
        """
        copied = b"" if records is None else bytes(records)
        batch = QueuedBatch(records=copied, acks=acks, transaction=transaction)
        config = partition.config
        if (
            partition not in self._queues
            and config.sparklog_validate_batches != RECORDS
            and has_few_records(copied)
        ):
            self._end(partition, batch, _refusal(copied, config))
            return batch.outcome
        return self._queues.add(partition, partition, batch)

    async def _validate_first(self, queue: BatchQueue[Partition, QueuedBatch]) -> None:
        first = queue.first
        assert first is not None
        async with self._gate:
            refusal = await run_blocking(_refusal, first.records, queue.partition.config)
        queue.take()
        if not first.outcome.cancelled():
            self._end(queue.partition, first, refusal)

    def _end(self, partition: Partition, batch: QueuedBatch, refusal: KafkaError | None) -> None:
        """Append the batch unless its records are refused; it gets its outcome now or later."""
        outcome = self._append(partition, batch) if refusal is None else refusal
        if isinstance(outcome, asyncio.Future):
            _pass_on(outcome, batch)
        else:
            batch.give(outcome)

    def _append(self, partition: Partition, batch: QueuedBatch) -> Outcome | OutcomeFuture:
        replica_manager, tp = self._replica_manager, partition.topic_partition
        try:
            if replica_manager.find(*tp) is not partition:
                raise gone(partition)
            (outcome,) = replica_manager.append_records(
                partition, ((batch.records, batch.acks),), now_ms=replica_manager.now_ms()
            )
            return self._verifications.resolve(
                partition, batch.records, batch.acks, batch.transaction, outcome
            )
        except KafkaError as refusal:
            return refusal
        except Exception as error:
            logger.exception("a batch for %s was not appended", tp)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _pass_on(verified: OutcomeFuture, batch: QueuedBatch) -> None:
    """Give the batch the outcome that it has after its verification; both may be cancelled."""

    def give(verified: OutcomeFuture) -> None:
        if not verified.cancelled():
            batch.give(verified.result())

    verified.add_done_callback(give)
    batch.outcome.add_done_callback(lambda outcome: outcome.cancelled() and verified.cancel())


def _full(waiting_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{waiting_bytes} bytes of batches wait for their validation "
        "(sparklog.validate.batches, or keys of compacted topics); send them again",
    )


def _refusal(records: bytes, config: TopicConfig) -> KafkaError | None:
    """The reason to refuse the records; None for valid ones.  The append checks the header."""
    try:
        read_client_batch(records, config)
    except KafkaError:
        return None
    try:
        if config.sparklog_validate_batches == RECORDS:
            from sparklog.wire.records.batch_check import check_records

            check_records(records)
        return _keyless_refusal(records) if config.compacts else None
    except DecodeError as error:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"the records of the batch cannot be decoded: {error}"
        )


def _keyless_refusal(records: bytes) -> KafkaError | None:
    if has_few_records(records):
        keyless = first_keyless_of_few(records)
    else:
        from sparklog.wire.records.record_fields import first_keyless

        keyless = first_keyless(records)
    if keyless is None:
        return None
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"record {keyless} of the batch has no key, which a compacted topic needs",
    )
