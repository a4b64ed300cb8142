"""What every node answers about transactions while there is no transaction coordinator.

Owns: the one refusal.  Must not know who asks.
"""

from typing import NoReturn

from sparklog.errors import ErrorCode, KafkaError


def refuse_transactional_id(transactional_id: str) -> NoReturn:
    """Refuse InitProducerId with a transactional id.

    The code is one that every client takes as final; most others (COORDINATOR_NOT_AVAILABLE above
    all) are retried for ever.
    """
    raise KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"transactional id {transactional_id!r} refused: transactions are not available yet; "
        "use an idempotent producer without one",
    )
