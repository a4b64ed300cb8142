"""The settings of the transaction coordinator.

Owns: the values that decisions about transactions depend on.  Must not know where settings come
from.
"""

from dataclasses import dataclass
from typing import Final

#: Transactional ids that one pass over expired ids looks at without a pause.
EXPIRY_IDS_AT_ONCE: Final = 2_000
#: Ongoing transactions that one pass over timeouts looks at without a pause.
TIMEOUTS_AT_ONCE: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The settings of transactions, in milliseconds.

    Args:
        max_timeout_ms: the longest timeout that a producer may ask for
            (``transaction.max.timeout.ms``).
        id_expiration_ms: how long an unused transactional id is remembered
            (``transactional.id.expiration.ms``).
        timeout_check_ms: how often transactions are looked at for their timeout.
        expiration_check_ms: how often transactional ids are looked at for expiry.
        concurrent_wait_ms: how long a request waits for the transition before it.  Kafka refuses
            such a request at once, and its clients ask again after a pause.
        broker_wait_ms: the same for the requests of brokers, which ask for many transactions at
            once and repeat each question themselves.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    timeout_check_ms: int = 10_000
    expiration_check_ms: int = 3_600_000
    concurrent_wait_ms: int = 1_000
    broker_wait_ms: int = 20
