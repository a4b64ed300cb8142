"""The answers about transactions while there is no transaction coordinator.

Owns: the refusals, and the check of InitProducerId requests.  Must not know which node is asked.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

#: v6, for two-phase commits (KIP-939), is not released in Kafka either.
INIT_PRODUCER_ID_MAX_VERSION: Final = 5


def transactions_refused(transactional_id: str) -> KafkaError:
    """The answer to FindCoordinator and InitProducerId with a transactional id.

    Every client takes this error code as final.  After most other codes librdkafka keeps asking for
    a transaction coordinator until the application's timeout, and after COORDINATOR_NOT_AVAILABLE
    all clients do.  The timeout would not tell the user what is wrong.
    """
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"transactional id {transactional_id!r} refused: transactions are not available yet; "
        "use an idempotent producer without one",
    )


def check_init_producer_id(request: InitProducerIdRequest) -> None:
    """Raises KafkaError unless the request is valid for a producer without a transactional id."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is null, or not empty")
    if request.transactional_id is not None:
        raise transactions_refused(request.transactional_id)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a producer id and its epoch are given both or neither"
        )


def init_producer_id_refused(
    _request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error.code), producer_epoch=NO_PRODUCER_EPOCH)
