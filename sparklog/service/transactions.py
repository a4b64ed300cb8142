"""What every node answers about transactions while there is no transaction coordinator.

Owns: the one refusal.  Must not know who asks.
"""

from sparklog.errors import ErrorCode, KafkaError


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


def refuse_transactional_id(transactional_id: str | None) -> None:
    """Raises KafkaError unless there is none."""
    if transactional_id is not None:
        raise transactions_refused(transactional_id)
