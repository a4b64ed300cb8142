"""First batches of transactions, which wait for the word of the transaction coordinator (KIP-890).

Owns: the batches that wait, for each producer of each partition in the order of their arrival, and
when the coordinator is asked again.  Must not know how the coordinator is asked, requests, or what
an answer waits for.  Kafka: ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``.

A partition that has the transaction open takes its batches at once.  If a marker comes while the
coordinator is asked, its word may be about the transaction before, so the coordinator is asked
again.  A batch is appended in the same step in which this is checked.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Partition, UnverifiedTransactionError
from sparklog.executors.replica_manager.batch_queues import (
    BatchQueue,
    BatchQueues,
    Outcome,
    QueuedBatch,
    RequestTransaction,
    gone,
)
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import Buffer

if TYPE_CHECKING:
    from sparklog.executors.replica_manager.replica_manager import ReplicaManager

#: Bytes of batches that wait, of all partitions; further batches are refused (retriable).
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
#: Times that the coordinator is asked about one batch, because markers came meanwhile.
ASKED_MAX: Final = 10

#: A producer of a partition.
_Key: TypeAlias = tuple[Partition, int]

logger = logging.getLogger(__name__)


class VerifyTransaction(Protocol):
    """Asks the transaction coordinator whether partitions belong to a producer's transaction."""

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> None:
        """Return if they do; ``add`` makes them part of it.  Raises KafkaError otherwise."""


class TransactionVerifications:
    """The batches of one broker that wait for the transaction coordinator.

    Args:
        is_on: whether ``transaction.partition.verification.enable`` is set.
    """

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        verify: VerifyTransaction,
        is_on: Callable[[], bool],
    ) -> None:
        self._replica_manager = replica_manager
        self._verify = verify
        self._is_on = is_on
        self._queues: BatchQueues[_Key] = BatchQueues(self._append_first, WAITING_BYTES_MAX, _full)
        self.refuse_waiting = self._queues.refuse_waiting

    def resolve(
        self,
        partition: Partition,
        records: Buffer | None,
        acks: int,
        transaction: RequestTransaction | None,
        result: Outcome,
    ) -> "Outcome | asyncio.Future[Outcome]":
        """The outcome of an append; a future if the coordinator has to be asked first.

        Args:
            transaction: the transaction of the batch's request.
            result: the result of the first try to append the batch.
        """
        if not isinstance(result, UnverifiedTransactionError):
            return result
        if transaction is None:
            return KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the request of a transactional batch must name the transactional id",
            )
        key = (partition, result.producer_id)
        return self._queues.add(key, partition, records, acks, transaction, result.producer_epoch)

    async def _append_first(self, queue: BatchQueue[_Key]) -> None:
        """Append the first batch, and those of the same transaction that wait behind it."""
        first = queue.first
        assert first is not None
        refusal = await self._confirm(queue.partition, queue.key[1], first)
        batches: list[QueuedBatch] = []
        while queue.first is not None and _same_transaction(queue.first, first):
            batches.append(queue.take())
        outcomes: list[Outcome] = [refusal] * len(batches) if refusal is not None else []
        for batch, outcome in zip(
            batches, outcomes or self._append(queue.partition, batches), strict=True
        ):
            batch.give(outcome)

    async def _confirm(
        self, partition: Partition, producer_id: int, batch: QueuedBatch
    ) -> KafkaError | None:
        """Why the batch must not be appended; None if its transaction is open or confirmed."""
        transaction = batch.transaction
        assert transaction is not None
        if not transaction.adds_partitions and not self._is_on():
            return None
        entries = partition.producers.entries
        for _ in range(ASKED_MAX):
            known = entries.get(producer_id)
            if known is not None and known.is_in_transaction(batch.epoch):
                return None
            self._replica_manager.counters.transaction_verifications += 1
            try:
                await self._verify(
                    transaction.transactional_id,
                    producer_id,
                    batch.epoch,
                    (partition.topic_partition,),
                    add=transaction.adds_partitions,
                )
            except KafkaError as error:
                return error
            if entries.get(producer_id) is known:
                return None
        return KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"transactions of producer {producer_id} ended {ASKED_MAX} times meanwhile",
        )

    def _append(self, partition: Partition, batches: list[QueuedBatch]) -> list[Outcome]:
        replica_manager, tp = self._replica_manager, partition.topic_partition
        if replica_manager.get(tp) is not partition:
            return [gone(partition)] * len(batches)
        try:
            return replica_manager.append_records(
                partition,
                [(batch.records, batch.acks) for batch in batches],
                now_ms=replica_manager.now_ms(),
                verified=True,
            )
        except Exception as error:
            logger.exception("verified batches for %s were not appended", tp)
            return [KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))] * len(batches)


def _same_transaction(one: QueuedBatch, other: QueuedBatch) -> bool:
    return (one.epoch, one.transaction) == (other.epoch, other.transaction)


def _full(waiting_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"{waiting_bytes} bytes of batches wait for the transaction coordinator; send them again",
    )


async def no_coordinator(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    *,
    add: bool,
) -> None:
    """The ``VerifyTransaction`` of a broker without a control plane."""
    raise KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no coordinator was asked about {transactional_id!r}"
    )
