"""The state machine of a transactional producer: what may happen next, and with which identity.

Owns: the state, the producer id and epoch, the sequence numbers, and the partitions and groups of
the open transaction.  Must not know requests, time, nor what a batch contains.  Kafka:
``TransactionManager``.

A failed batch leaves a gap in the sequence numbers of its partition, and an earlier request may
still arrive.  So the epoch changes between a failed transaction and the next one: EndTxn changes it
in transaction version 2 (KIP-890), InitProducerId does otherwise (KIP-360).
"""

from typing import Final

from sparklog.client.producer_sequences import BatchIdentity, ProducerIdentity, ProducerSequences
from sparklog.client.transactions.producer_state import TRANSITIONS, ProducerState
from sparklog.client.transactions.transaction_errors import (
    FATAL_FOR_BATCHES,
    FATAL_FOR_COORDINATORS,
    abortable_error,
    fatal_error,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

#: From this transaction version on, the first batch adds a partition, and each end has a new epoch.
IMPLICIT_PARTITIONS_FROM: Final = 2

_REMEDIES: Final = {
    ProducerState.UNINITIALIZED: "call init_transactions first",
    ProducerState.INITIALIZING: "init_transactions has not finished; call it again",
    ProducerState.READY: "no transaction is open; call begin_transaction first",
    ProducerState.IN_TRANSACTION: "a transaction is open; commit it or abort it",
    ProducerState.COMMITTING_TRANSACTION: "its commit has not finished; call commit_transaction "
    "again",
    ProducerState.ABORTING_TRANSACTION: "its abort has not finished; call abort_transaction again",
}


class TransactionManager:
    """The state of one transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = ProducerState.UNINITIALIZED
        #: The producer id and epoch; None before the first InitProducerId.
        self.identity: ProducerIdentity | None = None
        #: Kafka's ``transaction.version`` of the open transaction.
        self.transaction_version = 0
        self._cause: BaseException | None = None
        self._sequences = ProducerSequences()
        self._partitions: set[TopicPartition] = set()
        self._partitions_to_add: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._started = False
        self._needs_new_epoch = False

    # the life of a producer

    def begin_initializing(self) -> None:
        """InitProducerId is sent, for the first time or again.  Raises KafkaError."""
        if self.state is not ProducerState.INITIALIZING:
            self._require("init_transactions", ProducerState.UNINITIALIZED)
            self._to(ProducerState.INITIALIZING)

    def initialized(self, identity: ProducerIdentity) -> None:
        """The coordinator has answered; no other producer of this id can go on."""
        self._use(identity)
        self._to(ProducerState.READY)

    def begin(self, transaction_version: int) -> None:
        """A transaction begins; nothing is sent.  Raises KafkaError."""
        self._require("begin_transaction", ProducerState.READY)
        self.transaction_version = transaction_version
        self._to(ProducerState.IN_TRANSACTION)

    def begin_commit(self) -> None:
        """The application sends no more records; a repetition is allowed.  Raises KafkaError."""
        if self.state is not ProducerState.COMMITTING_TRANSACTION:
            self._require("commit_transaction", ProducerState.IN_TRANSACTION)
            self._to(ProducerState.COMMITTING_TRANSACTION)

    def begin_abort(self) -> None:
        """The transaction ends without its records; a repetition is allowed.  Raises KafkaError."""
        repeated = self.state is ProducerState.ABORTING_TRANSACTION or self.is_recovering
        if not repeated:
            if self.state is not ProducerState.ABORTABLE_ERROR:
                self._require("abort_transaction", ProducerState.IN_TRANSACTION)
            self._to(ProducerState.ABORTING_TRANSACTION)

    def ended(self, identity: ProducerIdentity | None) -> None:
        """The coordinator has decided; ``identity`` is the one of the next transaction, if it told.

        After a failure without a new epoch the state is INITIALIZING.
        """
        if identity is not None:
            self._use(identity)
        self._partitions.clear()
        self._partitions_to_add.clear()
        self._groups.clear()
        self._started = False
        self._cause = None
        recovers = self._needs_new_epoch
        self._to(ProducerState.INITIALIZING if recovers else ProducerState.READY)

    @property
    def is_open(self) -> bool:
        """Whether a transaction was begun and has not ended."""
        return self.state not in (
            ProducerState.UNINITIALIZED,
            ProducerState.INITIALIZING,
            ProducerState.READY,
            ProducerState.FATAL_ERROR,
        )

    @property
    def can_abort(self) -> bool:
        """Whether a transaction is open that is not being committed."""
        return self.is_open and self.state is not ProducerState.COMMITTING_TRANSACTION

    @property
    def is_recovering(self) -> bool:
        """Whether the producer gets a new epoch after a failed transaction."""
        return self.state is ProducerState.INITIALIZING and self.identity is not None

    @property
    def needs_end_txn(self) -> bool:
        """Whether the coordinator may know of the transaction."""
        return self._started

    # what a transaction contains

    @property
    def adds_implicitly(self) -> bool:
        """Whether batches and offsets add themselves to the transaction (KIP-890)."""
        return self.transaction_version >= IMPLICIT_PARTITIONS_FROM

    def check_open(self, call: str) -> None:
        """Raises KafkaError unless ``call`` may add to the transaction."""
        self._require(call, ProducerState.IN_TRANSACTION)

    def partitions_to_add(self, tp: TopicPartition) -> frozenset[TopicPartition]:
        """The partitions to add before a batch of ``tp`` may be sent; empty: it may be sent.

        Raises KafkaError when the transaction takes no more batches.
        """
        self._require("send", ProducerState.IN_TRANSACTION, ProducerState.COMMITTING_TRANSACTION)
        if tp in self._partitions:
            return frozenset()
        if self.adds_implicitly:
            self.partitions_added({tp})
            return frozenset()
        self._partitions_to_add.add(tp)
        return frozenset(self._partitions_to_add)

    def partitions_added(self, partitions: frozenset[TopicPartition] | set[TopicPartition]) -> None:
        self._partitions |= partitions
        self._partitions_to_add -= partitions
        self._started = True

    def must_add_offsets(self, group_id: str) -> bool:
        """Whether AddOffsetsToTxn comes before the group's TxnOffsetCommit."""
        if self.adds_implicitly:
            self._started = True
            return False
        return group_id not in self._groups

    def offsets_added(self, group_id: str) -> None:
        self._groups.add(group_id)
        self._started = True

    def next_batch(self, tp: TopicPartition) -> BatchIdentity:
        """The header fields of the next batch of a partition; ``delivered`` counts it."""
        if tp not in self._sequences:
            assert self.identity is not None
            self._sequences.start(tp, self.identity)
        return self._sequences.next_batch(tp)

    def delivered(self, tp: TopicPartition, record_count: int) -> None:
        self._sequences.advance(tp, record_count)

    # failures

    def batch_failed(self, error: BaseException) -> None:
        """A record was not written, or it is unknown whether it was."""
        self._fail(error, is_fatal=_has_code(error, FATAL_FOR_BATCHES))

    def request_failed(self, error: KafkaError) -> KafkaError:
        """A coordinator refused a request within the transaction.  Returns the error to raise."""
        self._fail(error, is_fatal=_has_code(error, FATAL_FOR_COORDINATORS))
        return self.error or error

    def end_refused(self, error: KafkaError) -> KafkaError:
        """The coordinator refused InitProducerId or EndTxn.  Returns the error to raise.

        Only a commit may be refused in favour of an abort.
        """
        can_abort = self.state is ProducerState.COMMITTING_TRANSACTION and (
            error.code is ErrorCode.TRANSACTION_ABORTABLE
        )
        self._fail(error, is_fatal=not can_abort)
        return self.error or error

    @property
    def error(self) -> KafkaError | None:
        """Why the transaction must be aborted, or the producer closed; None: neither."""
        if self._cause is None:
            return None
        if self.state is ProducerState.FATAL_ERROR:
            assert isinstance(self._cause, KafkaError)
            return fatal_error(self.transactional_id, self._cause)
        if self.state is ProducerState.ABORTABLE_ERROR:
            return abortable_error(self.transactional_id, self._cause)
        return None

    def _fail(self, error: BaseException, *, is_fatal: bool) -> None:
        if self.state is ProducerState.FATAL_ERROR:
            return
        self._needs_new_epoch = self.is_open
        if is_fatal:
            self._cause = error
            self.state = ProducerState.FATAL_ERROR
        elif ProducerState.ABORTABLE_ERROR in TRANSITIONS[self.state]:
            self._cause = error
            self._to(ProducerState.ABORTABLE_ERROR)

    # transitions

    def _require(self, call: str, *states: ProducerState) -> None:
        if self.state in states:
            return
        if (error := self.error) is not None:
            raise error
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{call} of {self.transactional_id!r} is out of turn: {_REMEDIES[self.state]}",
        )

    def _to(self, state: ProducerState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} does not lead to {state}"
        self.state = state

    def _use(self, identity: ProducerIdentity) -> None:
        """Sequence numbers begin at 0 with every producer epoch."""
        if identity != self.identity:
            self.identity = identity
            self._sequences = ProducerSequences()
            self._needs_new_epoch = False


def _has_code(error: BaseException, codes: frozenset[ErrorCode]) -> bool:
    return isinstance(error, KafkaError) and error.code in codes
