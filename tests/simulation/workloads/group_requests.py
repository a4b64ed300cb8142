"""The requests of members and their answers as events, each attempt for itself.

Owns: what an answer of a coordinator says for sure.  Must not know who sends requests, or why.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sparklog.client.groups.consumer_protocol import decode_assignment
from sparklog.client.groups.coordinator_link import CoordinatorLink
from sparklog.errors import ErrorCode
from sparklog.types import NO_NODE, TopicPartition
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from sparklog.wire.protocol.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.protocol.schema import Request
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetCommitRefused,
    OffsetsRead,
    PartitionsAssigned,
)
from tests.simulation.workloads.scene import Scene

#: Codes that are answered before anything is written.
REFUSALS = frozenset(
    {
        *(ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID),
        *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND),
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


@contextmanager
def watched(scene: Scene) -> Iterator[None]:
    """Meanwhile what coordinators are asked and answer is in the history."""
    real = CoordinatorLink.request

    async def request(
        self: CoordinatorLink,
        request: Request,
        *,
        timeout_s: float | None = None,
        waits: bool = False,
        at_most: int | None = None,
    ) -> Any:
        asked, op = scene.history.position, 0
        if isinstance(request, OffsetCommitRequest):
            op = scene.history.new_op()
            scene.history.record(_invoked(scene, op, request))
        response = await real(self, request, timeout_s=timeout_s, waits=waits, at_most=at_most)
        match request:
            case OffsetCommitRequest():
                _note_commit(scene, op, response)
            case OffsetFetchRequest():
                _note_offsets(scene, self, asked, response)
            case SyncGroupRequest():
                _note_assignment(scene, request, response)
            case _:
                pass
        return response

    with patch.object(CoordinatorLink, "request", request):
        yield


def _invoked(scene: Scene, op: int, request: OffsetCommitRequest) -> OffsetCommitInvoked:
    logs = logs_by_partition(scene)
    return OffsetCommitInvoked(
        op=op,
        group=request.group_id,
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(
            (logs[TopicPartition(topic.name, part.partition_index)], part.committed_offset)
            for topic in request.topics
            for part in topic.partitions
        ),
    )


def _note_commit(scene: Scene, op: int, response: OffsetCommitResponse) -> None:
    codes = {
        ErrorCode.of(part.error_code) for topic in response.topics for part in topic.partitions
    }
    if codes == {ErrorCode.NONE}:
        scene.count("acked_commits")
        scene.history.record(OffsetCommitAcked(op=op))
    elif codes <= REFUSALS:
        scene.count("refused_commits")
        scene.history.record(OffsetCommitRefused(op=op, code=", ".join(c.name for c in codes)))


def _note_offsets(scene: Scene, link: CoordinatorLink, asked: int, response: Any) -> None:
    logs = logs_by_partition(scene)
    endpoint = link._endpoint
    for group in response.groups:
        parts = [
            (logs[TopicPartition(topic.name, part.partition_index)], part)
            for topic in group.topics
            for part in topic.partitions
        ]
        if group.error_code or any(part.error_code for _, part in parts):
            continue
        scene.count("offset_fetches")
        scene.history.record(
            OffsetsRead(
                asked=asked,
                group=group.group_id,
                # Another request may have forgotten meanwhile who was asked.
                node=NO_NODE if endpoint is None else int(endpoint.host.rpartition("-")[2]),
                offsets=tuple(
                    (log, part.committed_offset if part.committed_offset >= 0 else None)
                    for log, part in parts
                ),
            )
        )


def _note_assignment(scene: Scene, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
    if not response.error_code:
        logs = logs_by_partition(scene)
        assigned = sorted(decode_assignment(response.assignment))
        scene.history.record(
            PartitionsAssigned(
                group=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                logs=tuple(logs[tp] for tp in assigned),
                instance_id=request.group_instance_id,
            )
        )


def logs_by_partition(scene: Scene) -> dict[TopicPartition, LogId]:
    """The partitions of the topics that live as long as the run."""
    return {TopicPartition(log.topic, log.partition): log for log in scene.logs}
