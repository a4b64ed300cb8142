"""The transactional ids that requests may name.

Owns: their bound.  Must not know what a request asks for.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import MAX_INT16

#: Kafka's bound of every string, and that of the key in ``__transaction_state``.
TRANSACTIONAL_ID_BYTES_MAX: Final = MAX_INT16


def require_transactional_id(transactional_id: str) -> None:
    """Check a transactional id.

    Raises:
        KafkaError: INVALID_REQUEST for an empty id, and for one of more than
            ``TRANSACTIONAL_ID_BYTES_MAX`` bytes.
    """
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if len(transactional_id) * 4 <= TRANSACTIONAL_ID_BYTES_MAX:
        return  # a character has no more than four bytes
    size = len(transactional_id.encode())
    if size > TRANSACTIONAL_ID_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id of {size} bytes exceeds the limit of {TRANSACTIONAL_ID_BYTES_MAX}",
        )
