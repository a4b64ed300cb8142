"""The options of a producer of single records.

Owns: their names, defaults and limits.  Must not know how a producer works.
"""

from dataclasses import dataclass

from sparklog.client.data_client import ACKS_ALL
from sparklog.types import MAX_INT32, Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer.

    ``acks`` is 0, 1 or -1 (all).  Idempotence needs -1 and is off otherwise.

    With a ``transactional_id``, which names the application's instance over its restarts, records
    are sent in transactions; the cluster aborts a transaction that takes longer than
    ``transaction_timeout_ms``.  Raises ValueError.
    """

    acks: int = ACKS_ALL
    idempotent: bool = True
    compression: Compression = Compression.NONE
    linger_ms: int = 5
    batch_bytes: int = 128 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_s: float = 60.0
    create_topics: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.transactional_id is None:
            return
        if not self.transactional_id:
            raise ValueError("transactional_id is empty; give a name, or None for no transactions")
        if self.acks != ACKS_ALL or not self.idempotent:
            raise ValueError("transactions need acks=-1 and idempotent=True")
        if not 0 < self.transaction_timeout_ms <= MAX_INT32:
            raise ValueError(
                f"transaction_timeout_ms={self.transaction_timeout_ms} is not between 1 and "
                f"{MAX_INT32}"
            )
