"""Deliberate bugs of transactions, each as a patch of the real code.

Owns: what the checkers of transactions must catch.  Must not know how it is caught.
"""

from collections.abc import Callable
from dataclasses import replace

from sparklog.driver.transaction_coordinator.transaction_log import TransactionLog
from sparklog.driver.transactions import (
    PREPARED,
    Decision,
    ProducerIdentity,
    Transaction,
    TransactionRecord,
    TransactionShard,
    WriteMarkers,
)
from sparklog.driver.transactions.connection_order import ConnectionOrder
from sparklog.driver.transactions.decision import EndTransaction
from sparklog.driver.transactions.transaction_shard import Now
from sparklog.executors.coordinator import CoordinatorStateMachine
from sparklog.executors.coordinator.log_loader import LogLoader
from sparklog.executors.coordinator.state_machine import CoordinatorRecord
from sparklog.executors.groups.offset_store import OffsetStore
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.transaction_verifications import TransactionVerifications
from sparklog.types import Isolation, OffsetSpec
from tests.simulation.planting import Bug, Patch, bug

#: Only runs with transactions show these.
TRANSACTION_BUGS: set[str] = set()


def transaction_bug(make: Bug) -> Bug:
    TRANSACTION_BUGS.add(make.__name__)
    return bug(make)


# the coordinator


@transaction_bug
def write_markers_before_the_decision_is_replicated() -> list[Patch]:
    """The markers of a transaction leave together with the record of its decision."""
    real = TransactionShard.handle

    def handle(self: TransactionShard, request: object, now: Now) -> Decision:
        decision = real(self, request, now)  # type: ignore[arg-type]
        return replace(decision, markers=decision.markers + tuple(_early(self, decision)))

    return [(TransactionShard, "handle", handle)]


def _early(shard: TransactionShard, decision: Decision) -> list[WriteMarkers]:
    pending = [shard._pending[each.transactional_id].transaction for each in decision.appends]
    return [
        WriteMarkers(
            transactional_id=each.transactional_id,
            producer=ProducerIdentity(each.producer_id, each.producer_epoch),
            committed=each.state.label == "PrepareCommit",
            partitions=each.partitions,
            client_version=each.client_version,
        )
        for each in pending
        if each.state in PREPARED and each.partitions
    ]


@transaction_bug
def load_without_a_fence() -> list[Patch]:
    """A new coordinator reads the log as it is, and the former one may go on with it."""

    async def load(self: TransactionLog, replay: Callable[[TransactionRecord], None]) -> int:
        end = await self._offset(OffsetSpec.LATEST)
        await self._read(end, replay)
        return end

    return [(TransactionLog, "load", load)]


@transaction_bug
def initialize_in_the_same_epoch() -> list[Patch]:
    """A new instance gets the producer epoch of the instance before it."""
    real = Transaction.with_next_epoch

    def with_next_epoch(
        self: Transaction, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transaction:
        after = real(self, timeout_ms, expected_epoch, now_ms)
        return replace(after, producer_epoch=max(self.producer_epoch, 0))

    return [(Transaction, "with_next_epoch", with_next_epoch)]


@transaction_bug
def take_an_end_from_an_earlier_connection() -> list[Patch]:
    """An EndTxn of an old client that was delayed ends a later transaction."""
    real = ConnectionOrder.check

    def check(self: ConnectionOrder, request: object, current: object) -> None:
        if not isinstance(request, EndTransaction):
            real(self, request, current)  # type: ignore[arg-type]

    return [(ConnectionOrder, "check", check)]


@transaction_bug
def forget_decided_transactions_at_a_load() -> list[Patch]:
    """Markers that the former coordinator had not written are never written."""
    real = TransactionShard.loaded

    def loaded(self: TransactionShard, now: Now) -> Decision:
        return replace(real(self, now), markers=())

    return [(TransactionShard, "loaded", loaded)]


@transaction_bug
def take_a_cut_without_a_hold() -> list[Patch]:
    """Transactions are decided while the last stable offsets of a cut are collected."""

    def is_held(self: TransactionShard, decided: Transaction) -> bool:
        return False

    return [(TransactionShard, "_is_held", is_held)]


# partitions


@transaction_bug
def take_batches_of_old_clients_without_verification() -> list[Patch]:
    """A batch of an old client that was delayed begins a transaction that nobody ends."""
    real = TransactionVerifications._confirm

    async def confirm(self: TransactionVerifications, key: object, batch: object) -> object:
        if not batch.transaction.adds_partitions:  # type: ignore[attr-defined]
            return None
        return await real(self, key, batch)  # type: ignore[arg-type]

    return [(TransactionVerifications, "_confirm", confirm)]


@transaction_bug
def read_past_the_stable_offset() -> list[Patch]:
    """Readers of committed records read up to the high watermark."""

    def readable_end(self: Partition, isolation: Isolation) -> int:
        return self.high_watermark

    return [(Partition, "readable_end", readable_end)]


# offsets


class _WithoutTransactions:
    """Hands on only what belongs to no transaction."""

    def __init__(self, machine: CoordinatorStateMachine) -> None:
        self._machine = machine

    def replay(self, record: CoordinatorRecord) -> None:
        self._machine.replay(record)

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        """The record is lost."""

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        self._machine.replay_transaction_end(producer_id, committed=committed)


@transaction_bug
def lose_pending_offsets_at_a_load() -> list[Patch]:
    """A new coordinator of a group does not know the offsets of open transactions."""
    real = LogLoader.load

    async def load(self: LogLoader, partition: Partition, machine: CoordinatorStateMachine) -> int:
        return await real(self, partition, _WithoutTransactions(machine))  # type: ignore[arg-type]

    return [(LogLoader, "load", load)]


@transaction_bug
def commit_the_offsets_of_an_abort() -> list[Patch]:
    """A group goes on behind records whose outputs were aborted."""
    real = OffsetStore.replay_transaction_end

    def replay_transaction_end(self: OffsetStore, producer_id: int, *, committed: bool) -> set[str]:
        return real(self, producer_id, committed=True)

    return [(OffsetStore, "replay_transaction_end", replay_transaction_end)]
