"""The way to the coordinator of one group or one transactional id.

Owns: the coordinator's last known address, and a connection to it that no other user shares.
Must not know any particular request.  ``coordinators`` is the way to many coordinators at once.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline
from sparklog.client.find_coordinator_api import (
    COORDINATOR_MOVED,
    CoordinatorType,
    coordinator_error,
    find_coordinator_request,
    found_coordinators,
)
from sparklog.errors import ClosedError, ConnectError, KafkaError
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.protocol.schema import Request

T = TypeVar("T")


class CoordinatorChannel:
    """Requests to the coordinator of a key; ``request_timeout_s`` bounds each of them."""

    def __init__(
        self, cluster: ClusterClient, kind: CoordinatorType, key: str, request_timeout_s: float
    ) -> None:
        self.request_timeout_s = request_timeout_s
        #: The finalized features that the coordinator told last, by name.
        self.features: dict[str, int] = {}
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._endpoint: Endpoint | None = None
        self._finding = asyncio.Lock()
        self._lane = cluster.new_lane()

    async def close(self) -> None:
        await self._cluster.close_lane(self._lane)

    def forget(self) -> None:
        """Forget the coordinator, which has moved or does not answer."""
        self._endpoint = None

    async def find(self, deadline: Deadline) -> Endpoint:
        """Find the coordinator's address, once.  Raises ConnectError, KafkaError."""
        async with self._finding:
            if self._endpoint is None:
                self._endpoint = await self._ask(deadline)
            return self._endpoint

    async def _ask(self, deadline: Deadline) -> Endpoint:
        request = find_coordinator_request(self._kind, (self._key,))
        response: FindCoordinatorResponse = await self._cluster.ask_broker(request, deadline)
        (found,) = found_coordinators(response, {self._key}, self._key)
        error = coordinator_error(self._kind, found)
        if error is not None:
            raise error
        return Endpoint(found.host, found.port)

    async def connect(self, deadline: Deadline) -> Connection:
        """Connect to the coordinator, once.  Raises ConnectError, KafkaError."""
        return await self._connect(deadline, self._lane)

    async def request(
        self, request: Request, *, timeout_s: float | None = None, at_most: int | None = None
    ) -> Any:
        """Ask the coordinator once.  Raises ConnectError, KafkaError."""
        return await self._request(request, self._lane, timeout_s, at_most)

    def noting_moves(self, read: Callable[[], T]) -> T:
        """The result of reading a response, whose error may say that the coordinator has moved."""
        try:
            return read()
        except KafkaError as error:
            self.note_refusal(error)
            raise

    def note_refusal(self, error: KafkaError) -> None:
        """Take a refusal of the coordinator, which may have moved."""
        if error.code in COORDINATOR_MOVED:
            self.forget()

    async def _request(
        self, request: Request, lane: str, timeout_s: float | None, at_most: int | None
    ) -> Any:
        deadline = Deadline(self.request_timeout_s if timeout_s is None else timeout_s)
        connection = await self._connect(deadline, lane)
        self.features = connection.features
        try:
            return await connection.request(
                request, timeout_s=max(deadline.left_s, 0.001), at_most=at_most
            )
        except (ConnectError, KafkaError):
            self.forget()
            raise

    async def _connect(self, deadline: Deadline, lane: str) -> Connection:
        endpoint = await self.find(deadline)
        try:
            return await self._cluster.connect(endpoint, deadline, lane)
        except ClosedError:
            raise
        except (ConnectError, KafkaError):
            self.forget()
            raise
