"""The errors of a coordinator's clients for what goes wrong in its log.

Owns: the mapping of Kafka's ``CoordinatorOperationExceptionHelper``.  Must not know requests.

MESSAGE_TOO_LARGE is not mapped: handlers answer it differently, because only some clients can do
something about it.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError

#: The client looks for the coordinator again and repeats its request.
_RETRIED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def operation_error(error: KafkaError) -> KafkaError:
    """The error that the client of a coordinator gets for an error of the partition."""
    code = _RETRIED.get(error.code)
    return error if code is None else KafkaError(code, error.message)
