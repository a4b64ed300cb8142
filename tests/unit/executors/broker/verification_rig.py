"""A partition with batches that wait for a coordinator, which answers when it is told to.

Owns: what a Produce handler does with a batch, and the coordinator's questions.  Must not know what
a test expects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import (
    Appended,
    Partition,
    TransactionEnd,
    UnverifiedTransactionError,
)
from sparklog.executors.partition.results import SentBatch
from sparklog.executors.replica_manager import OutcomeFuture, RequestTransaction
from sparklog.executors.replica_manager.transaction_verifications import TransactionVerifications
from sparklog.types import TopicPartition
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NOW, TP, Maker, batch

OLD, NEW = RequestTransaction("tx", False), RequestTransaction("tx", True)
#: A base offset or an error code.
Answer = int | ErrorCode


class Coordinator:
    """Answers a question when it is told to; ``asked`` has the questions that have no answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, bool, asyncio.Future[None]]] = []

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> None:
        assert (transactional_id, tuple(partitions)) == ("tx", (TP,))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked.append((producer_id, producer_epoch, add, answer))
        await answer

    def questions(self) -> list[tuple[int, int, bool]]:
        """Producer id, epoch, and whether the partition is to be added."""
        return [(producer_id, epoch, add) for producer_id, epoch, add, _ in self.asked]

    async def answer(self, refusal: Exception | None = None) -> None:
        """Answer the first question, and let the broker take the answer."""
        *_, future = self.asked.pop(0)
        if refusal is None:
            future.set_result(None)
        else:
            future.set_exception(refusal)
        await settle()


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Broker:
    """A partition and its verifications, with the calls of a replica manager."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.hosted: Partition | None = partition
        self.coordinator = Coordinator()
        self.is_on = True
        self.counters = SimpleNamespace(transaction_verifications=0)
        self.verifications = TransactionVerifications(
            cast("Any", self), self.coordinator, lambda: self.is_on
        )

    def now_ms(self) -> int:
        return NOW

    def get(self, _: TopicPartition) -> Partition | None:
        return self.hosted

    def append_records(
        self, partition: Partition, batches: list[SentBatch], *, now_ms: int, verified: bool = False
    ) -> list[Appended | KafkaError]:
        return partition.append_all_as_leader(batches, now_ms=now_ms, verified=verified)

    def send(
        self, sequence: int, *, epoch: int = 3, producer_id: int = 7,
        transaction: RequestTransaction | None = OLD, size: int = 1,
    ) -> "Sent":  # fmt: skip
        """As a Produce handler does with a batch of one record."""
        records = batch(
            b"v" * size, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True
        )
        (result,) = self.append_records(self.partition, [(records, 1)], now_ms=NOW)
        return Sent(self.verifications.resolve(self.partition, records, 1, transaction, result))

    def end(self, epoch: int, producer_id: int = 7) -> None:
        marker = EndTxnMarker(control_type=ControlType.COMMIT, coordinator_epoch=1)
        end = TransactionEnd(producer_id=producer_id, producer_epoch=epoch, marker=marker)
        self.partition.end_transaction(end, now_ms=NOW)

    @property
    def waiting(self) -> tuple[int, int]:
        """Queues, and bytes in them."""
        queues = self.verifications._queues
        return len(queues._queues), queues._bytes


class Sent:
    """A batch that was sent."""

    def __init__(self, found: Appended | KafkaError | OutcomeFuture) -> None:
        self.found = found

    @property
    def waits(self) -> bool:
        return isinstance(self.found, asyncio.Future) and not self.found.done()

    @property
    def answer(self) -> Answer:
        found = self.found.result() if isinstance(self.found, asyncio.Future) else self.found
        if isinstance(found, Appended):
            return found.base_offset if found.refusal is None else found.refusal.code
        assert not isinstance(found, UnverifiedTransactionError)
        return found.code


def run(test: Callable[[Broker], Awaitable[None]]) -> None:
    async def within() -> None:
        broker = Broker(Maker().open())
        await asyncio.wait_for(test(broker), 30)
        broker.partition.check_invariants()
        await broker.verifications.refuse_waiting(broker.partition)
        assert broker.waiting == (0, 0)

    asyncio.run(within())


def answers(*sent: Sent) -> list[Answer]:
    return [each.answer for each in sent]
