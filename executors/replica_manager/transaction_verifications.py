"""First batches of transactions, which wait for the word of the transaction coordinator (KIP-890).

Owns: the batches that wait, for each producer of each partition in the order of their arrival, when
the coordinator is asked again, and which batch may be the first that a partition knows of a
producer.  Must not know how the coordinator is asked, requests, or what an answer waits for.
Kafka: ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``.

A partition that has the transaction open takes its batches at once.  If a marker comes while the
coordinator is asked, its word may be about the transaction before, so the coordinator is asked
again.  A batch is appended in the same step in which this is checked.

The epoch tells the transactions of new clients apart (transaction version 2), but not those of old
ones.  A batch of an old client must not reach a later transaction because it was late.  So it is
refused in two cases, upon which a client that is alive sends it again: a marker has come since the
arrival of the batch, or the client has gone (``cancel_with_client`` cancels the outcome then).
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import (
    Appended,
    Partition,
    ProducerEntry,
    UnverifiedTransactionError,
)
from sparklog.executors.replica_manager.batch_queues import (
    BatchQueue,
    BatchQueues,
    Outcome,
    OutcomeFuture,
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
#: Refused first batches that are remembered; the oldest is forgotten.
REFUSED_MAX: Final = 10_000

logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """A producer of a partition."""

    partition: Partition
    producer_id: int


@dataclass(slots=True, eq=False, kw_only=True)
class _FirstBatch(QueuedBatch):
    """A batch of a transaction that the partition did not know at the arrival of the batch.

    Args:
        leader_epoch: the leader epoch at the arrival.
        entry: what the partition knew of the producer at the arrival.
    """

    transaction: RequestTransaction
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    entry: ProducerEntry | None


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
        self._queues: BatchQueues[_Key, _FirstBatch] = BatchQueues(
            self._append_first, WAITING_BYTES_MAX, _full
        )
        self._refused = _RefusedBatches()

    def resolve(
        self,
        partition: Partition,
        records: Buffer | None,
        acks: int,
        transaction: RequestTransaction | None,
        result: Outcome,
    ) -> Outcome | OutcomeFuture:
        """The outcome of an append; a future if the coordinator has to be asked first.

        Args:
            transaction: the transaction of the batch's request.
            result: the result of the first try to append the batch, a moment ago.
        """
        if not isinstance(result, UnverifiedTransactionError):
            return result
        if transaction is None:
            return KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the request of a transactional batch must name the transactional id",
            )
        assert records is not None, "it was judged by its header"
        key = _Key(partition, result.producer_id)
        batch = _FirstBatch(
            records=bytes(records),
            acks=acks,
            transaction=transaction,
            producer_epoch=result.producer_epoch,
            base_sequence=result.base_sequence,
            leader_epoch=partition.leader_epoch,
            entry=partition.producers.entries.get(result.producer_id),
        )
        outcome = self._queues.add(key, partition, batch)
        if outcome.done():
            self._refused.add(key, batch, outcome.result())
        return outcome

    async def refuse_waiting(self, partition: Partition) -> None:
        """Refuse the batches that wait for a partition, which is about to be closed."""
        self._refused.forget(partition)
        await self._queues.refuse_waiting(partition)

    async def _append_first(self, queue: BatchQueue[_Key, _FirstBatch]) -> None:
        """Append the first batch, and those of the same transaction that wait behind it."""
        first = queue.first
        assert first is not None
        refusal = await self._confirm(queue.key, first)
        batches: list[_FirstBatch] = []
        while (batch := queue.first) is not None and _same_transaction(batch, first):
            queue.take()
            if not batch.outcome.cancelled():
                batches.append(batch)
        if not batches:
            return
        refusal = refusal or self._sequence_refusal(queue.key, batches[0])
        outcomes = [refusal] * len(batches) if refusal else self._append(queue.partition, batches)
        self._refused.add(queue.key, batches[0], outcomes[0])
        for batch, outcome in zip(batches, outcomes, strict=True):
            batch.give(outcome)

    async def _confirm(self, key: _Key, batch: _FirstBatch) -> KafkaError | None:
        """Why the batch must not be appended; None if its transaction is open or confirmed."""
        transaction, producers = batch.transaction, key.partition.producers
        adds = transaction.adds_partitions
        if not adds and not self._is_on():
            return None
        for _ in range(ASKED_MAX):
            known = producers.entries.get(key.producer_id)
            if known is not None and known.is_in_transaction(batch.producer_epoch):
                return None
            if not adds and known is not batch.entry:
                return KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"a transaction of producer {key.producer_id} ended meanwhile; send the batch "
                    "again",
                )
            self._replica_manager.counters.transaction_verifications += 1
            try:
                await self._verify(
                    transaction.transactional_id,
                    key.producer_id,
                    batch.producer_epoch,
                    (key.partition.topic_partition,),
                    add=adds,
                )
            except KafkaError as error:
                return error
            if key.partition.leader_epoch != batch.leader_epoch:
                return KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"the leader of {key.partition.topic_partition} changed meanwhile",
                )
            if producers.entries.get(key.producer_id) is known:
                return None
        return KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"transactions of producer {key.producer_id} ended {ASKED_MAX} times meanwhile",
        )

    def _sequence_refusal(self, key: _Key, batch: _FirstBatch) -> KafkaError | None:
        """Why the batch must not be the first that the partition knows of its producer.

        Batches behind a refused one may be on their way.  If one of them were appended before the
        refused batch is sent again, the producer would have lost it: librdkafka takes a later
        success for a success of the batches before.
        """
        if key.partition.producers.entries.get(key.producer_id) is not None:
            return None  # the sequences are known
        first = 0 if batch.transaction.adds_partitions else self._refused.lowest(key, batch)
        if batch.base_sequence <= first:
            return None
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {batch.base_sequence} of producer {key.producer_id} (epoch "
            f"{batch.producer_epoch}) in {key.partition.topic_partition}: expected {first}, with "
            "which its first batch there begins",
        )

    def _append(self, partition: Partition, batches: list[_FirstBatch]) -> list[Outcome]:
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


class _Refused(NamedTuple):
    """The refused batches of a producer in a partition, and the epochs of their refusal."""

    producer_epoch: int
    leader_epoch: int
    lowest_sequence: int


class _RefusedBatches:
    """The lowest sequence that each producer of a partition is expected to send again.

    A sequence is forgotten with the leader epoch: the producer may have sent the batch again to the
    next leader.  Kafka: ``VerificationStateEntry.lowestSequence``.
    """

    def __init__(self) -> None:
        self._lowest: dict[_Key, _Refused] = {}

    def add(self, key: _Key, batch: _FirstBatch, outcome: Outcome) -> None:
        """Take the outcome of a batch: its producer repeats it if the error is retriable."""
        refusal = outcome.refusal if isinstance(outcome, Appended) else outcome
        if refusal is None:
            self._lowest.pop(key, None)
        elif refusal.retriable:
            lowest, leader_epoch = self.lowest(key, batch), key.partition.leader_epoch
            self._lowest.pop(key, None)
            self._lowest[key] = _Refused(batch.producer_epoch, leader_epoch, lowest)
            if len(self._lowest) > REFUSED_MAX:
                del self._lowest[next(iter(self._lowest))]

    def lowest(self, key: _Key, batch: _FirstBatch) -> int:
        """The lowest sequence of this batch and of the refused ones of the same epochs."""
        refused = self._lowest.get(key)
        epochs = (batch.producer_epoch, key.partition.leader_epoch)
        if refused is None or (refused.producer_epoch, refused.leader_epoch) != epochs:
            return batch.base_sequence
        return min(refused.lowest_sequence, batch.base_sequence)

    def forget(self, partition: Partition) -> None:
        """The partition is about to be closed."""
        for key in [key for key in self._lowest if key.partition is partition]:
            del self._lowest[key]


def _same_transaction(one: _FirstBatch, other: _FirstBatch) -> bool:
    """Whether the word about one batch is about the other one too."""
    return one.entry is other.entry and (
        (one.producer_epoch, one.transaction, one.leader_epoch)
        == (other.producer_epoch, other.transaction, other.leader_epoch)
    )


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
