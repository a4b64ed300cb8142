"""What all handlers of requests about transactions share: the way to the coordinator.

Owns: gone clients, and the codes of old versions.  Must not know any particular request.
"""

from collections.abc import Callable
from typing import Final

from sparklog.driver.transaction_coordinator import TransactionCoordinator, TransactionResult
from sparklog.driver.transactions import TransactionRequest
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.gone_clients import cancel_with_client
from sparklog.service.handler import RequestContext
from sparklog.service.transactional_ids import require_transactional_id

#: Transactions of clients before version 2 do not bump the epoch when they end.
OLD_CLIENT_VERSION: Final = 0


class TransactionalRequests:
    """The transaction coordinator, as the handlers of node 0 see it."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator

    async def submit(
        self,
        context: RequestContext,
        transactional_id: str,
        make_request: Callable[[int], TransactionRequest],
        *,
        fenced_from: int = 0,
    ) -> TransactionResult:
        """Let the coordinator decide.  Raises KafkaError.

        Versions below ``fenced_from`` do not know PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH.
        """
        require_transactional_id(transactional_id)
        future = self.coordinator.submit(transactional_id, make_request)
        cancel_with_client(context.connection, future)
        try:
            return await future
        except KafkaError as error:
            if error.code == ErrorCode.PRODUCER_FENCED and context.version < fenced_from:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from None
            raise
