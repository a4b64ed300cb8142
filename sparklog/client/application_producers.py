"""``Producer`` and ``AsyncProducer``: producers with a client of their own, for applications.

Owns: the clients.  Must not know how records are sent; ``producer`` describes the methods.
"""

from collections.abc import Iterable
from typing import Any

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.blocking_producer import BlockingProducer
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.producer import Producer as ClusterProducer
from sparklog.client.producer_options import ProducerOptions
from sparklog.types import Endpoint


class AsyncProducer(ClusterProducer):
    """A producer for code with an event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[Endpoint] | ClusterClient,
        *,
        client_id: str = "sparklog",
        **options: Any,
    ) -> None:
        """``bootstrap_servers``: ``HOST:PORT,HOST:PORT``, or a client that stays the caller's.

        ``options`` are those of ``ProducerOptions``.  Raises TypeError, ValueError.
        """
        chosen = ProducerOptions(**options)
        self._own: ClusterClient | None = None
        if isinstance(bootstrap_servers, ClusterClient):
            cluster = bootstrap_servers
        else:
            self._own = cluster = ClusterClient(bootstrap_servers, client_id=client_id)
        super().__init__(cluster, chosen)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and stop; an open transaction is aborted."""
        try:
            await super().close(timeout_s)
        finally:
            if self._own is not None:
                await self._own.close()


class Producer(BlockingProducer):
    """``AsyncProducer`` for code without an event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[Endpoint],
        *,
        client_id: str = "sparklog",
        **options: Any,
    ) -> None:
        """See ``AsyncProducer``."""
        chosen = ProducerOptions(**options)
        client = BlockingDataClient(
            bootstrap_servers, client_id=client_id, timeout_s=chosen.delivery_timeout_s
        )
        super().__init__(client, chosen)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and stop; an open transaction is aborted.  Does nothing in a forked process."""
        if self._closed or not self._client.usable:
            return
        try:
            super().close(timeout_s)
        finally:
            self._client.close()
