"""The transaction of a Produce request, and the error codes that its version knows.

Owns: from which version on a partition is added with its first batch (KIP-890), and the codes of a
batch that was not verified.  Must not know batches or how the coordinator is asked.  Kafka:
``TransactionSupportedOperation``, ``ReplicaManager.handleProduceAppend``.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.replica_manager import RequestTransaction
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
    """The transaction that a request names."""
    if request.transactional_id is None:
        return None
    return RequestTransaction(request.transactional_id, version >= _ADDS_PARTITIONS_FROM)


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
