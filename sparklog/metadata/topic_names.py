"""The rules for topic names, and the names of internal topics.

Owns: Kafka's rules (``org.apache.kafka.common.internals.Topic``).  Must not know any topic's state.
"""

import re
from typing import Final

from sparklog.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
#: Topics that clients may read but must not write.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__sparklog_jobs"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION), with the reason, for an illegal name."""
    reason = _objection(name)
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {reason}")


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
