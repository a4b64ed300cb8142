"""A small cluster with a coordinator of one group, at a node that may change.

Owns: FindCoordinator, the requests of members, and committed offsets.  Must not know the clients.
"""

import asyncio
from typing import Any

from sparklog.errors import ErrorCode
from sparklog.service.dispatch import ApiHandler
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from sparklog.wire.protocol.messages.heartbeat import HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupResponse
from sparklog.wire.protocol.messages.leave_group import LeaveGroupResponse
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.client.groups.tiny_coordinator import TinyCoordinator
from tests.unit.client.small_cluster import HOST, SmallCluster

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
_RESPONSES = {
    JOIN_GROUP: JoinGroupResponse,
    HEARTBEAT: HeartbeatResponse,
    LEAVE_GROUP: LeaveGroupResponse,
    SYNC_GROUP: SyncGroupResponse,
}


class GroupCluster(SmallCluster):
    def __init__(self, brokers: int = 2, *, auto_create: bool = True) -> None:
        super().__init__(brokers, auto_create=auto_create)
        self.coordinator = TinyCoordinator()
        #: The node of the coordinator.
        self.coordinator_id = 1
        self.committed: dict[TopicPartition, int] = {}
        #: While this is not set, commits wait at the coordinator.
        self.commits_may_end = asyncio.Event()
        self.commits_may_end.set()

    def further_apis(self, node_id: int) -> list[ApiHandler]:
        if node_id == 0:
            return []
        return [
            self.api(node_id, OFFSET_COMMIT, 9, self._commit),
            self.api(node_id, OFFSET_FETCH, 9, self._fetch_offsets),
            self.api(node_id, FIND_COORDINATOR, 6, self._find),
            *(self.api(node_id, key, 3, self._ask) for key in _RESPONSES),
        ]

    def _find(self, _node_id: int, request: Any, code: ErrorCode) -> FindCoordinatorResponse:
        found = {"node_id": self.coordinator_id, "host": HOST, "error_code": code}
        found["port"] = self.port(self.coordinator_id)
        coordinators = tuple(Coordinator(key=key, **found) for key in request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=coordinators, **found)

    def _ask(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        if node_id != self.coordinator_id:
            code = ErrorCode.NOT_COORDINATOR
        if code:
            return _RESPONSES[request.API_KEY](error_code=code)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        self.coordinator.pass_time(loop.time())
        self.coordinator.ask(request, answered.set_result, loop.time())
        return answered

    async def _commit(self, node_id: int, request: Any, code: ErrorCode) -> OffsetCommitResponse:
        await self.commits_may_end.wait()
        now = asyncio.get_running_loop().time()
        if node_id != self.coordinator_id:
            code = ErrorCode.NOT_COORDINATOR
        elif request.member_id and not code:
            generation = request.generation_id_or_member_epoch
            code = self.coordinator.check(request.member_id, generation, now)
        if not code:
            self.committed |= {
                TopicPartition(topic.name, part.partition_index): part.committed_offset
                for topic in request.topics
                for part in topic.partitions
            }
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _fetch_offsets(self, node_id: int, request: Any, code: ErrorCode) -> OffsetFetchResponse:
        if node_id != self.coordinator_id:
            code = ErrorCode.NOT_COORDINATOR

        def partitions(kind: Any, topic: Any) -> Any:
            return tuple(
                kind(
                    partition_index=number,
                    committed_offset=self.committed.get(TopicPartition(topic.name, number), -1),
                    error_code=code,
                )
                for number in topic.partition_indexes
            )

        if request.groups:
            (group,) = request.groups
            topics = tuple(
                OffsetFetchResponseTopics(
                    name=topic.name, partitions=partitions(OffsetFetchResponsePartitions, topic)
                )
                for topic in group.topics
            )
            found = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
            return OffsetFetchResponse(groups=(found,))
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=topic.name, partitions=partitions(OffsetFetchResponsePartition, topic)
                )
                for topic in request.topics
            )
        )
