"""The way to the coordinator of one group: which node it is, and requests to it.

Owns: the coordinator's address as last heard, its connections, and offsets (OffsetCommit and
OffsetFetch) with their retries.  Must not know the state of a member.

JoinGroup and SyncGroup wait at the coordinator, and the responses of a connection keep the order of
its requests.  So they have a connection of their own, beside the one for heartbeats and offsets.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check, retry
from sparklog.client.groups.member_events import COORDINATOR_MOVED
from sparklog.client.groups.offset_requests import (
    NAMES_UNTIL,
    GroupIdentity,
    OffsetAndMetadata,
    check_commit,
    commit_request,
    committed_offsets,
    offset_fetch_request,
)
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.protocol.schema import Request

T = TypeVar("T")

_GROUP: Final = 0


class CoordinatorLink:
    """Requests to the coordinator of a group; ``request_timeout_s`` bounds each of them."""

    def __init__(self, cluster: ClusterClient, group_id: str, request_timeout_s: float) -> None:
        self.group_id = group_id
        self.request_timeout_s = request_timeout_s
        self._cluster = cluster
        self._endpoint: Endpoint | None = None
        self._finding = asyncio.Lock()
        self._lane, self._waiting_lane = cluster.new_lane(), cluster.new_lane()

    async def close(self) -> None:
        await self._cluster.close_lane(self._lane)
        await self._cluster.close_lane(self._waiting_lane)

    def forget(self) -> None:
        """The coordinator has moved, or does not answer."""
        self._endpoint = None

    async def find(self, deadline: Deadline) -> Endpoint:
        """The coordinator's address; one attempt.  Raises ConnectError, KafkaError."""
        async with self._finding:
            if self._endpoint is None:
                self._endpoint = await self._ask(deadline)
            return self._endpoint

    async def _ask(self, deadline: Deadline) -> Endpoint:
        request = FindCoordinatorRequest(
            key=self.group_id, key_type=_GROUP, coordinator_keys=(self.group_id,)
        )
        found: FindCoordinatorResponse = await self._cluster.ask_broker(request, deadline)
        told = found.coordinators[0] if found.coordinators else found
        if told.error_code:
            text = f"the coordinator of the group {self.group_id!r} is not known"
            check(told.error_code, f"{text}: {told.error_message}" if told.error_message else text)
        return Endpoint(told.host, told.port)

    async def request(
        self,
        request: Request,
        *,
        timeout_s: float | None = None,
        waits: bool = False,
        at_most: int | None = None,
    ) -> Any:
        """One attempt at the coordinator.  ``waits``: the coordinator may hold the response back.

        Raises ConnectError, KafkaError.
        """
        deadline = Deadline(self.request_timeout_s if timeout_s is None else timeout_s)
        endpoint = await self.find(deadline)
        lane = self._waiting_lane if waits else self._lane
        try:
            connection = await self._cluster.connect(endpoint, deadline, lane)
            return await connection.request(
                request, timeout_s=max(deadline.left_s, 0.001), at_most=at_most
            )
        except ClosedError:
            raise
        except (ConnectError, KafkaError):
            self.forget()
            raise

    # offsets

    async def commit(
        self,
        identity: GroupIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_s: float,
    ) -> None:
        """Commit offsets; retried until the time is up.  Raises KafkaError, ConnectError."""
        if not offsets:
            return
        request = commit_request(identity, offsets)

        async def attempt() -> None:
            response = await self.request(request, at_most=NAMES_UNTIL)
            self._noting_moves(lambda: check_commit(response, self.group_id))

        await retry(attempt, Deadline(timeout_s))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets.  Raises KafkaError, ConnectError when the time is up."""
        wanted = list(partitions)
        if not wanted:
            return {}
        request = offset_fetch_request(self.group_id, wanted, require_stable=require_stable)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self.request(request, at_most=NAMES_UNTIL)
            return self._noting_moves(lambda: committed_offsets(response, wanted))

        return await retry(attempt, Deadline(timeout_s))

    def _noting_moves(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except KafkaError as error:
            if error.code in COORDINATOR_MOVED:
                self.forget()
            raise


def as_kafka_error(error: Exception) -> KafkaError:
    """A failed request as an error with a code, so that a member knows whether to retry."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
