"""The check of InitProducerId requests, and their error response.

Owns: what brokers and the control plane have in common.  Must not know how ids are allocated.
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


def check_init_producer_id(request: InitProducerIdRequest) -> None:
    """Raises INVALID_REQUEST for an empty transactional id, and for half of an identity."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is null, or not empty")
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a producer id and its epoch are given both or neither"
        )


def init_producer_id_refused(
    _request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error.code), producer_epoch=NO_PRODUCER_EPOCH)
