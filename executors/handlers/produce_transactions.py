"""The transaction of a Produce request, and the error codes that its version knows.

Owns: from which version on a partition is added with its first batch (KIP-890), the codes of a
batch that was not verified, and that a batch of a gone client is not appended.  Must not know
batches or how the coordinator is asked.  Kafka: ``TransactionSupportedOperation``,
``ReplicaManager.handleProduceAppend``.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import ACKS_NONE
from sparklog.executors.replica_manager import OutcomeFuture, RequestTransaction
from sparklog.service.gone_clients import cancel_with_client
from sparklog.service.transactional_ids import require_transactional_id
from sparklog.transport import ServerConnection
from sparklog.wire.protocol.messages.produce import ProduceRequest

#: Produce versions that add the partition of a batch to the transaction, and whose clients know
#: TRANSACTION_ABORTABLE.
_ADDS_PARTITIONS_FROM: Final = 12
_ABORTABLE_FROM: Final = 11
#: Errors on the way to the coordinator, which not every producer retries.  NOT_ENOUGH_REPLICAS is
#: retried by all of them, and without another look at the metadata.
_NOT_VERIFIED_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def transaction_of(version: int, request: ProduceRequest) -> RequestTransaction | None:
    """The transaction that a request names.  Raises INVALID_REQUEST for an impossible id."""
    if request.transactional_id is None:
        return None
    require_transactional_id(request.transactional_id)
    return RequestTransaction(request.transactional_id, version >= _ADDS_PARTITIONS_FROM)


def withdraw_with_client(
    connection: ServerConnection,
    acks: int,
    transaction: RequestTransaction | None,
    outcome: OutcomeFuture,
) -> None:
    """Do not append a batch that still waits when its client goes.

    The epoch does not tell the transactions of an old client apart, and it may be in the next one
    when the batch is verified.  A client that asks for no acknowledgement does not wait for it.
    """
    if transaction is not None and not transaction.adds_partitions and acks != ACKS_NONE:
        cancel_with_client(connection, outcome)


def known_to_producer(version: int, error: KafkaError) -> KafkaError:
    """The error of a batch that waited for the coordinator, in the codes of a version."""
    code = error.code
    if code in _NOT_VERIFIED_YET or (
        code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_FROM
    ):
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    return error if code == error.code else KafkaError(code, error.message)
