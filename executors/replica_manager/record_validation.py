"""The validation of records before a batch is appended.

Batches for topics with ``sparklog.validate.batches`` are decoded.  Records for compacted topics
must have keys (``LogValidator``).

Owns: the queue of such batches for each partition, in the order of their arrival, and the bounds
of memory and of work.  Must not know requests, or when a response is sent.

The records are decoded in worker threads; the event loop never decompresses.  As long as a
partition's queue holds a batch, every later batch of that partition goes through the queue too, so
a change of the setting does not change the order.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparklog.config import TopicConfig
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.executors.partition import Appended, Partition, read_client_batch
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.records.batch import Buffer

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
Outcome = Appended | KafkaError


@dataclass(slots=True)
class _Queued:
    records: bytes
    acks: int
    outcome: "asyncio.Future[Outcome]"


@dataclass(slots=True)
class _Queue:
    batches: deque[_Queued]
    work: "asyncio.Task[None] | None" = None


class RecordValidations:
    """The batches of one broker that wait until their records are decoded."""

    def __init__(self, replica_manager: "ReplicaManager") -> None:
        self._replica_manager = replica_manager
        self._queues: dict[Partition, _Queue] = {}
        self._bytes = 0
        self._gate = asyncio.Semaphore(VALIDATIONS_AT_ONCE)

    def wants(self, partition: Partition) -> bool:
        """Whether the batches for this partition have to go through ``submit``."""
        config = partition.config
        return (
            config.sparklog_validate_batches == RECORDS
            or config.compacts
            or partition in self._queues
        )

    def submit(
        self, partition: Partition, records: Buffer | None, acks: int
    ) -> "asyncio.Future[Outcome]":
        """Append the batch once its records are decoded.  The future is the batch's outcome.

        The bytes are copied.  Effects are carried out and the append is counted.
        """
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        copied = b"" if records is None else bytes(records)
        if self._bytes and self._bytes + len(copied) > QUEUED_BYTES_MAX:
            outcome.set_result(
                KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self._bytes} bytes of batches wait for their validation "
                    "(sparklog.validate.batches, or keys of compacted topics); send them again",
                )
            )
            return outcome
        queue = self._queues.setdefault(partition, _Queue(deque()))
        queue.batches.append(_Queued(copied, acks, outcome))
        self._bytes += len(copied)
        if queue.work is None:
            queue.work = asyncio.get_running_loop().create_task(self._work_through(partition))
        return outcome

    async def refuse_waiting(self, partition: Partition) -> None:
        """Refuse the batches that wait, because the partition is about to be closed."""
        queue = self._queues.get(partition)
        if queue is None or queue.work is None:
            return
        queue.work.cancel()
        await asyncio.wait([queue.work])
        self._end(partition, queue)  # a task that was cancelled before it began has not done so

    async def _work_through(self, partition: Partition) -> None:
        queue = self._queues[partition]
        try:
            while queue.batches:
                first = queue.batches[0]
                async with self._gate:
                    refusal = await run_blocking(_refusal, first.records, partition.config)
                queue.batches.popleft()
                self._bytes -= len(first.records)
                _give(first, self._append(partition, first) if refusal is None else refusal)
        finally:
            self._end(partition, queue)

    def _end(self, partition: Partition, queue: _Queue) -> None:
        """Refuse the batches that the queue still holds, and forget the queue."""
        if self._queues.get(partition) is queue:
            del self._queues[partition]
        while queue.batches:
            left = queue.batches.popleft()
            self._bytes -= len(left.records)
            _give(left, _gone(partition))

    def _append(self, partition: Partition, queued: _Queued) -> Outcome:
        replica_manager, tp = self._replica_manager, partition.topic_partition
        try:
            if replica_manager.find(*tp) is not partition:
                raise _gone(partition)
            (outcome,) = replica_manager.append_records(
                partition, ((queued.records, queued.acks),), now_ms=replica_manager.now_ms()
            )
        except KafkaError as refusal:
            return refusal
        except Exception as error:
            logger.exception("a batch for %s was not appended", tp)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return outcome


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
    from sparklog.wire.records.record_fields import first_keyless

    keyless = first_keyless(records)
    if keyless is None:
        return None
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"record {keyless} of the batch has no key, which a compacted topic needs",
    )


def _give(queued: _Queued, outcome: Outcome) -> None:
    if not queued.outcome.done():
        queued.outcome.set_result(outcome)


def _gone(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{partition.topic_partition} moved before the records of a batch were validated",
    )
