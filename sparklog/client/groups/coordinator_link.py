"""The way to the coordinator of one group: requests of its members, and offsets.

Owns: the connection for requests that wait, and offsets (OffsetCommit and OffsetFetch) with their
retries.  Must not know the state of a member, nor how a coordinator is found.

JoinGroup and SyncGroup wait at the coordinator, and the responses of a connection keep the order of
its requests.  So they have a connection of their own, beside the connection for heartbeats and
offsets.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.coordinator_channel import CoordinatorChannel
from sparklog.client.deadline import Deadline, retry
from sparklog.client.find_coordinator_api import CoordinatorType
from sparklog.client.groups.offset_requests import (
    NAMES_UNTIL,
    GroupIdentity,
    OffsetAndMetadata,
    check_commit,
    commit_request,
    committed_offsets,
    offset_fetch_request,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.schema import Request


class CoordinatorLink(CoordinatorChannel):
    """Requests to the coordinator of a group; ``request_timeout_s`` bounds each of them."""

    def __init__(self, cluster: ClusterClient, group_id: str, request_timeout_s: float) -> None:
        super().__init__(cluster, CoordinatorType.GROUP, group_id, request_timeout_s)
        self.group_id = group_id
        self._waiting_lane = cluster.new_lane()

    async def close(self) -> None:
        await super().close()
        await self._cluster.close_lane(self._waiting_lane)

    async def request(
        self,
        request: Request,
        *,
        timeout_s: float | None = None,
        waits: bool = False,
        at_most: int | None = None,
    ) -> Any:
        """Send a request to the coordinator, once; with ``waits``, the response may take long.

        Raises ConnectError, KafkaError.
        """
        lane = self._waiting_lane if waits else self._lane
        return await self._request(request, lane, timeout_s, at_most)

    # offsets

    async def commit(
        self,
        identity: GroupIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_s: float,
    ) -> None:
        """Commit offsets, with retries until the time is up.  Raises KafkaError, ConnectError."""
        if not offsets:
            return
        request = commit_request(identity, offsets)
        deadline = Deadline(timeout_s)

        async def attempt() -> None:
            limit_s = min(self.request_timeout_s, deadline.left_s)
            response = await self.request(request, timeout_s=limit_s, at_most=NAMES_UNTIL)
            self.noting_moves(lambda: check_commit(response, self.group_id))

        await retry(attempt, deadline)

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
            return self.noting_moves(lambda: committed_offsets(response, wanted))

        return await retry(attempt, Deadline(timeout_s))


def as_kafka_error(error: Exception) -> KafkaError:
    """A failed request as an error with a code, so that a member knows whether to retry."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
