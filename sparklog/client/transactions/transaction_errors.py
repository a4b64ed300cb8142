"""The errors of a transactional producer: which of them end it, and what an application can do.

Owns: the division of error codes into fatal and abortable ones, and the words of the errors.  Must
not know states, nor requests.

An application decides by the code of the error that a call raised.  ``TRANSACTION_ABORTABLE``: call
``abort_transaction`` and begin again.  ``REQUEST_TIMED_OUT``: repeat the call.
``INVALID_TXN_STATE`` of a call out of turn: the message names the call that is missing.  Every
other code is final: close the producer.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError

#: Codes after which the producer cannot go on, in responses of Produce.  ``INVALID_PRODUCER_EPOCH``
#: is not among them: the coordinator knows whether another producer has taken over (KIP-588).
FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: The same in responses of coordinators.
FATAL_FOR_COORDINATORS: Final = FATAL_FOR_BATCHES | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
}
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def fatal_error(transactional_id: str, cause: KafkaError) -> KafkaError:
    """The error of every call after a fatal one; ``PRODUCER_FENCED`` for both codes of a fence."""
    if cause.code in _FENCED:
        error = KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"the producer with the transactional id {transactional_id!r} is fenced: another one "
            "was started with this id, or its transaction took longer than transaction_timeout_ms; "
            "close this producer",
        )
    elif cause.code is ErrorCode.INVALID_TXN_STATE:
        error = KafkaError(
            cause.code,
            f"the coordinator has no open transaction of {transactional_id!r}: it was aborted, for "
            "example because it took longer than transaction_timeout_ms; close this producer and "
            "make a new one",
        )
    else:
        error = KafkaError(
            cause.code,
            f"the producer with the transactional id {transactional_id!r} cannot go on: "
            f"{cause.message or cause.code.name}; close it and make a new one",
        )
    error.__cause__ = cause
    return error


def abortable_error(transactional_id: str, cause: BaseException) -> KafkaError:
    """The error of every call in a transaction that can only be aborted."""
    reason = str(cause) or type(cause).__name__
    error = KafkaError(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"the transaction of {transactional_id!r} has failed: {reason}; call abort_transaction, "
        "and then begin a new one",
    )
    error.__cause__ = cause
    return error


def unfinished_error(transactional_id: str, call: str, reason: object) -> KafkaError:
    """The time of ``call`` is up, and it is unknown whether the coordinator has done it."""
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{call} of {transactional_id!r} has not finished, and its outcome is unknown: {reason}; "
        f"call {call} again, which is safe, or close the producer",
    )


def aborted_error(transactional_id: str) -> KafkaError:
    """The error of a record that was not sent because its transaction was aborted."""
    return KafkaError(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"the transaction of {transactional_id!r} was aborted before the record was sent",
    )
