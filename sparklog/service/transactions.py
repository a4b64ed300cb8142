"""What every node answers about transactions while there is no transaction coordinator.

Owns: the refusals, and what InitProducerId may ask.  Must not know who asks.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

#: v6 is not released in Kafka either: it is about two-phase commits (KIP-939).
INIT_PRODUCER_ID_MAX_VERSION: Final = 5


def transactions_refused(transactional_id: str) -> KafkaError:
    """The answer to FindCoordinator and InitProducerId with a transactional id.

    The code is one that every client takes as final.  librdkafka goes on asking for a transaction
    coordinator after most others, and all clients do after COORDINATOR_NOT_AVAILABLE, until the
    application's timeout, which tells nobody what is wrong.
    """
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"transactional id {transactional_id!r} refused: transactions are not available yet; "
        "use an idempotent producer without one",
    )


def check_init_producer_id(request: InitProducerIdRequest) -> None:
    """Raises KafkaError unless an idempotent producer without a transactional id may ask this."""
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
