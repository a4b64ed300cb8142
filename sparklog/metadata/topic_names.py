"""The rules for topic names, and the names of internal topics.

Owns: Kafka's rules (``org.apache.kafka.common.internals.Topic``).  Must not know any topic's state.
"""

import re
from typing import Final

from sparklog.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SPARKLOG_JOBS: Final = "__sparklog_jobs"
#: Topics that the controller creates, and that clients may read but must not write or change.
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SPARKLOG_JOBS})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION), with the reason, for an illegal name."""
    reason = _objection(name)
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {reason}")


def check_not_internal(name: str, operation: str) -> None:
    """Refuse an operation of a client on an internal topic.

    Kafka refuses Produce and DeleteRecords with this error (``ReplicaManager``).  Deviation: Kafka
    lets clients create, delete and configure internal topics.

    Args:
        operation: such as "delete it"; the error says that clients cannot do this.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION; the topic is internal.
    """
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} is an internal topic; clients cannot {operation}",
        )


def _objection(name: str) -> str | None:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return f"cannot be {name!r}"
    if len(name) > NAME_LENGTH_MAX:
        return f"is {len(name)} characters long; {NAME_LENGTH_MAX} is the limit"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} contains a character other than ASCII letters, digits, '.', '_' and '-'"
    return None
