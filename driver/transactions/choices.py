"""Which transition a request leads to, from the state that is durable now.

Owns: the rules of InitProducerId, AddPartitionsToTxn and EndTxn, with Kafka's error codes.  Must
not know requests that wait, appends or markers.  Kafka: ``TransactionCoordinator``.

Each function returns the transaction after the request, or its result when nothing has to change.
Each one raises KafkaError for a refusal.  CONCURRENT_TRANSACTIONS says that the request can be
decided when the present transition is over.
"""

from collections.abc import Callable

from sparklog.driver.transactions.config import TransactionConfig
from sparklog.driver.transactions.decision import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdentity,
    VerifyPartitions,
)
from sparklog.driver.transactions.transaction import EPOCH_BUMP_VERSION, EPOCH_MAX, Transaction
from sparklog.driver.transactions.transaction_state import AT_REST, PREPARED, TransactionState
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

#: The states of a decided transaction, before and after its markers.
_COMMITTING = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ABORTING = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)


def check_init_producer_id(request: InitProducerId, config: TransactionConfig) -> None:
    """Raises INVALID_REQUEST or INVALID_TRANSACTION_TIMEOUT."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is null, or not empty")
    if not 0 < request.timeout_ms <= config.max_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"a transaction timeout of {request.timeout_ms} ms is not between 1 and "
            f"{config.max_timeout_ms}, which is transaction.max.timeout.ms",
        )


def after_init_producer_id(
    transaction: Transaction,
    request: InitProducerId,
    now_ms: int,
    new_producer_id: Callable[[], int],
    *,
    pending: bool,
) -> Transaction:
    """Empty with a new epoch; or PrepareAbort when a transaction is open, which is fenced."""
    expected = request.expected
    if pending:
        raise concurrent(transaction.transactional_id)
    if expected is not None and not _may_go_on(transaction, expected):
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"producer {expected.producer_id} of {transaction.transactional_id!r} is fenced: "
            f"producer {transaction.producer_id} has taken its place",
        )
    if transaction.state in PREPARED:
        raise concurrent(transaction.transactional_id)
    if transaction.state == TransactionState.ONGOING:
        return transaction.fenced(now_ms, transaction.client_version)
    expected_epoch = None if expected is None else expected.epoch
    if _needs_producer_id(transaction, expected_epoch):
        return transaction.with_next_producer_id(
            new_producer_id(), request.timeout_ms, expected_epoch, now_ms
        )
    return transaction.with_next_epoch(request.timeout_ms, expected_epoch, now_ms)


def _needs_producer_id(transaction: Transaction, expected_epoch: int | None) -> bool:
    """Whether the next epoch would be one that no client may have."""
    if not transaction.epochs_exhausted:
        return False
    if expected_epoch is None or expected_epoch == transaction.producer_epoch:
        return True
    # The epoch of abort markers, which the fenced producer cannot take over any more.
    fenced = transaction.producer_epoch > EPOCH_MAX
    return fenced and expected_epoch == transaction.last_producer_epoch


def after_add_partitions(
    transaction: Transaction | None, request: AddPartitions, now_ms: int, *, pending: bool
) -> Transaction | None:
    """Ongoing with the partitions; None when the transaction has them all already."""
    transaction = _transaction_of(transaction, request)
    if pending or transaction.state in PREPARED:
        raise concurrent(transaction.transactional_id)
    ongoing = transaction.state == TransactionState.ONGOING
    if ongoing and request.partitions <= transaction.partitions:
        return None
    return transaction.with_partitions(request.partitions, now_ms, request.client_version)


def missing_partitions(
    transaction: Transaction | None, request: VerifyPartitions, *, ending: bool
) -> frozenset[TopicPartition]:
    """The partitions that the open transaction does not have.

    Args:
        ending: the transaction is being prepared, and its record is not durable yet.
    """
    transaction = _transaction_of(transaction, request)
    if ending or transaction.state in PREPARED:
        raise concurrent(transaction.transactional_id)
    return request.partitions - transaction.partitions


def after_end_transaction(
    transaction: Transaction | None,
    request: EndTransaction,
    now_ms: int,
    new_producer_id: Callable[[], int],
    *,
    pending: bool,
) -> Transaction | ProducerIdentity:
    """PrepareCommit or PrepareAbort; the identity from now on when it was a retry."""
    if transaction is None:
        raise _unknown(request.transactional_id, request.producer)
    if request.client_version < EPOCH_BUMP_VERSION:
        transaction = _transaction_of(transaction, request)
        retry = True  # the same epoch cannot tell a retry from a second end
    else:
        retry = _is_retry(transaction, request.producer)
        if not retry:
            transaction = _transaction_of(transaction, request)
    if pending:
        raise concurrent(transaction.transactional_id)
    prepared, ended = _COMMITTING if request.committed else _ABORTING
    state = transaction.state
    if state == TransactionState.ONGOING:
        return _prepared(transaction, request, now_ms, new_producer_id)
    if retry and state == ended:
        return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if state == prepared or (state in PREPARED and not retry):
        raise concurrent(transaction.transactional_id)
    if state in AT_REST and not retry and not request.committed:
        return _prepared(transaction, request, now_ms, new_producer_id)
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{transaction.transactional_id!r} cannot "
        f"{'commit' if request.committed else 'abort'} in state {transaction.state.label}",
    )


def _prepared(
    transaction: Transaction,
    request: EndTransaction,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Transaction:
    bumps = request.client_version >= EPOCH_BUMP_VERSION
    rotates = bumps and transaction.epochs_exhausted
    return transaction.prepared(
        now_ms,
        request.client_version,
        committed=request.committed,
        next_producer_id=new_producer_id() if rotates else NO_PRODUCER_ID,
    )


def _is_retry(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Whether an EndTxn with version 2 has the identity from before the last bump.

    The end of a client before version 2 bumps no epoch, so the epoch before belongs to a producer
    that the client has fenced.  A timeout at the last epoch leaves an epoch that no client may
    have, and no next producer id: its producer is fenced, and InitProducerId gives it another id.
    """
    if producer == (transaction.producer_id, transaction.producer_epoch - 1):
        is_ended = transaction.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
        return is_ended and transaction.bumps_epochs and _has_identity(transaction)
    return (
        producer == (transaction.previous_producer_id, EPOCH_MAX)
        and transaction.producer_epoch == 0
        and transaction.state in AT_REST
    )


def _has_identity(transaction: Transaction) -> bool:
    """Whether there is an identity that the producer may use after this transition."""
    return transaction.producer_epoch <= EPOCH_MAX or transaction.next_producer_id != NO_PRODUCER_ID


def _may_go_on(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Whether a producer that goes on after an error is the last one that was started.

    The epoch of a matching id is checked when it is bumped.  The previous id with an exhausted
    epoch is a retry of a request that has rotated the id.
    """
    if transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    if expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= EPOCH_MAX


def _transaction_of(
    transaction: Transaction | None,
    request: AddPartitions | VerifyPartitions | EndTransaction,
) -> Transaction:
    """The transaction of the request's producer.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    if (
        transaction is not None
        and transaction.state in PREPARED
        and request.producer == (transaction.next_producer_id, 0)
    ):
        raise concurrent(transaction.transactional_id)  # the producer has its next id already
    if transaction is None or request.producer.producer_id != transaction.producer_id:
        raise _unknown(request.transactional_id, request.producer)
    epoch = request.producer.epoch
    if epoch != transaction.producer_epoch or epoch > EPOCH_MAX:  # that of abort markers
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"epoch {epoch} of {request.transactional_id!r} is fenced: the "
            f"producer's epoch is {transaction.producer_epoch}",
        )
    return transaction


def _unknown(transactional_id: str, producer: ProducerIdentity) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer {producer.producer_id} does not belong to {transactional_id!r}; "
        "the producer has to be initialised again",
    )


def concurrent(transactional_id: str) -> KafkaError:
    """The refusal of a request that came before the last transition was over."""
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transition of {transactional_id!r} is not over yet",
    )
