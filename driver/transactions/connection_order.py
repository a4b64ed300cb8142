"""The latest connection of each producer whose transactions have the same epoch.

Owns: which of its requests come too late.  Must not know transactions or how connections are
numbered.

Epochs do not tell the transactions of a client before version 2 apart.  So an EndTxn that was
delayed on a broken connection would end a later transaction.  Such a client sends all requests of a
transactional id on one connection, and opens the next one when it breaks.
"""

from typing import NamedTuple

from sparklog.driver.transactions.decision import AddPartitions, EndTransaction, ProducerIdentity
from sparklog.driver.transactions.transaction import EPOCH_BUMP_VERSION
from sparklog.errors import ErrorCode, KafkaError


class _Latest(NamedTuple):
    producer: ProducerIdentity
    connection: int


class ConnectionOrder:
    """The connections of the producers of one shard."""

    def __init__(self) -> None:
        self._latest: dict[str, _Latest] = {}

    def check(
        self, request: AddPartitions | EndTransaction, current: ProducerIdentity | None
    ) -> None:
        """Refuse what an old client sent before it gave its connection up.

        Args:
            current: the identity of the producer.  The request of another one says nothing about
                the connections of this one; its epoch decides.

        Raises:
            KafkaError: CONCURRENT_TRANSACTIONS, upon which a client that is alive asks again.
        """
        if request.client_version >= EPOCH_BUMP_VERSION or request.producer != current:
            return
        latest = self._latest.get(request.transactional_id, _Latest(current, 0))
        if latest.producer == current and request.connection < latest.connection:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"{request.transactional_id!r} has sent requests on a later connection",
            )
        self._latest[request.transactional_id] = _Latest(current, request.connection)

    def forget(self, transactional_id: str) -> None:
        """The transactional id has expired."""
        self._latest.pop(transactional_id, None)
