"""What the coordinator knows about one transactional id, and how a transition changes it.

Owns: the durable values, producer epochs above all.  Must not know requests, pending transitions or
markers.  Kafka: ``TransactionMetadata``.

A transition makes a new ``Transaction``.  The coordinator appends it to ``__transaction_state`` and
uses it when the append is durable.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.driver.transactions.transaction_state import (
    AT_REST,
    TRANSITIONS,
    TransactionState,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import (
    MAX_INT16,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)

#: Clients of this transaction version bump the epoch with each transaction (KIP-890, part 2).
EPOCH_BUMP_VERSION: Final = 2
#: No client is given an epoch above this one, so that its producer can always be fenced.
EPOCH_MAX: Final = MAX_INT16 - 1
#: Each call of ``frozenset`` without items makes a new set of 216 bytes.
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class IllegalTransitionError(Exception):
    """The table has no such transition: an error of this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The durable state of a transactional id.

    Args:
        producer_id: the id that the producer uses now.
        previous_producer_id: the id before the last transition; -1 if there was none.
        next_producer_id: the id that follows when the epochs of ``producer_id`` have run out; -1
            otherwise.
        producer_epoch: the epoch that the producer uses now; -1 before the first.
        last_producer_epoch: the epoch before the last bump; -1 when another producer was started.
            By it the producer is recognised when it repeats its request, or when it goes on after
            its transaction was aborted.
        timeout_ms: milliseconds after which an open transaction is aborted.
        partitions: the partitions of the open transaction.
        start_ms: milliseconds of the time of day when the transaction began; -1 without one.
        update_ms: milliseconds of the time of day of the last transition.
        client_version: the transaction version of the client's last request; 2 bumps epochs.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    update_ms: int
    client_version: int = 0

    @property
    def epochs_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= EPOCH_BUMP_VERSION

    def with_next_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> "Transaction":
        """The producer starts, or goes on after an error (KIP-360).

        Args:
            expected_epoch: the epoch that the producer had, if it goes on; None if it starts.

        Raises:
            KafkaError: PRODUCER_FENCED when another producer was started after ``expected_epoch``.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None and self.producer_epoch != NO_PRODUCER_EPOCH:
            if expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # A retry, or an aborted producer: this epoch is that of its abort markers.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    f"epoch {expected_epoch} of {self.transactional_id!r} is fenced: another "
                    f"producer has epoch {self.producer_epoch}",
                )
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            update_ms=now_ms,
        )

    def with_next_producer_id(
        self, producer_id: int, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> "Transaction":
        """The epochs of the producer id have run out, so the producer gets a new id.

        Args:
            expected_epoch: as in ``with_next_epoch``.
        """
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else expected_epoch
        return self._to(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            update_ms=now_ms,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, client_version: int
    ) -> "Transaction":
        """The transaction writes to these partitions too; the first ones begin it."""
        begins = self.state in AT_REST
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if begins else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int, client_version: int) -> "Transaction":
        """The transaction aborts and its producer is fenced: InitProducerId, or time ran out.

        The bumped epoch is in the abort markers.  The fenced producer gets it when it goes on
        (KIP-360); for another producer it is bumped once more.
        """
        fencing = self._to(
            TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
        )
        return fencing._to(
            TransactionState.PREPARE_ABORT,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, now_ms: int, client_version: int, *, committed: bool, next_producer_id: int
    ) -> "Transaction":
        """The decision to commit or to abort.

        With ``client_version`` 2 the epoch is bumped, so that nothing of this transaction can reach
        a later one.  Such a client may also abort before any partition was added.

        Args:
            next_producer_id: the id that follows if the epochs of this one have run out; -1
                otherwise.
        """
        bumps = client_version >= EPOCH_BUMP_VERSION
        state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        return self._to(
            state,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """All markers are written."""
        committed = self.state == TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        changes: dict[str, Any] = {}
        if self.bumps_epochs and self.next_producer_id != NO_PRODUCER_ID:
            changes = {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._to(
            state,
            next_producer_id=NO_PRODUCER_ID,
            partitions=NO_PARTITIONS,
            update_ms=now_ms,
            **changes,
        )

    def dead(self) -> "Transaction":
        """The transactional id is forgotten."""
        return self._to(TransactionState.DEAD)

    def _to(self, state: TransactionState, **changes: Any) -> "Transaction":
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(
                f"{self.transactional_id!r} cannot go from {self.state.label} to {state.label}"
            )
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)
