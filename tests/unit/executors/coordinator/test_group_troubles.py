"""A real group behind the APIs: coordinators that move or lack replicas, and absurd requests."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.metadata import ConfigChanged
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.runtime_environment import SYSTEM
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from sparklog.wire.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from sparklog.wire.protocol.schema import Request
from tests.support.waiting import until
from tests.unit.executors.coordinator.group_rig import HERE, GroupRig, run
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led

NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)
NOT_AVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def machine() -> GroupStateMachine:
    return GroupStateMachine(GroupConfig(initial_rebalance_delay_ms=0), SYSTEM.new_id)


def join(member_id: str = "", metadata: bytes = b"topics") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=HERE,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


def sync(member_id: str, generation: int, *members: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=HERE,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in members
        ),
    )


def beat(member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=HERE, generation_id=generation, member_id=member_id)


def commit(member_id: str, generation: int, offset: int = 5) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=HERE,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(part,)),),
    )


async def new_member(rig: GroupRig) -> str:
    response = await rig.ask(join())
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return str(response.member_id)


async def stable_member(rig: GroupRig) -> str:
    """The only member of a group in generation 1."""
    member_id = await new_member(rig)
    assert (await rig.ask(join(member_id))).generation_id == 1
    response = await rig.ask(sync(member_id, 1, member_id))
    assert (response.error_code, response.assignment) == (0, member_id.encode())
    return member_id


async def move_away_and_back(rig: GroupRig, epoch: int) -> None:
    away = led(epoch, leader=OTHER, isr=(NODE, OTHER))
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, away)
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(epoch + 1))
    await until(lambda: rig.runtime.as_json()["active_shards"] == 1)


def test_a_coordinator_moves_while_members_wait_for_each_other() -> None:
    async def test(rig: GroupRig) -> None:
        first = await stable_member(rig)
        second = await new_member(rig)
        joining = asyncio.create_task(rig.ask(join(second)))
        rebalancing = int(ErrorCode.REBALANCE_IN_PROGRESS)
        while (await rig.ask(beat(first, 1))).error_code != rebalancing:
            await asyncio.sleep(0)
        await move_away_and_back(rig, 2)
        assert (await joining).error_code == NOT_COORDINATOR
        # The rebalance never was: the group goes on in generation 1, without the second member.
        assert (await rig.ask(beat(first, 1))).error_code == 0
        assert (await rig.ask(join(second))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        third = await new_member(rig)
        both = await asyncio.gather(rig.ask(join(third)), rig.ask(join(first)))
        assert {(each.error_code, each.generation_id) for each in both} == {(0, 2)}

    run(test, machine)


def test_a_coordinator_moves_while_members_wait_for_their_assignment() -> None:
    async def test(rig: GroupRig) -> None:
        first = await stable_member(rig)
        second = await new_member(rig)
        joined = await asyncio.gather(rig.ask(join(second)), rig.ask(join(first)))
        assert {each.generation_id for each in joined} == {2}
        waiting = asyncio.create_task(rig.ask(sync(second, 2)))
        await until(lambda: len(rig.runtime._shards[0]._requests) == 1)
        await move_away_and_back(rig, 2)
        assert (await waiting).error_code == NOT_COORDINATOR
        illegal = int(ErrorCode.ILLEGAL_GENERATION)
        assert (await rig.ask(sync(first, 2, first, second))).error_code == illegal
        assert first_code(await rig.ask(commit(first, 2), 9)) == illegal
        third = await new_member(rig)
        both = await asyncio.gather(rig.ask(join(third)), rig.ask(join(first)))
        assert {(each.error_code, each.generation_id) for each in both} == {(0, 2)}

    run(test, machine)


def test_a_group_survives_metadata_of_megabytes() -> None:
    async def test(rig: GroupRig) -> None:
        member_id = await stable_member(rig)
        huge = await rig.ask(join(metadata=bytes(5_000_000)))
        assert (huge.error_code, huge.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert (await rig.ask(beat(member_id, 1))).error_code == 0
        huge_commit = commit(member_id, 1)
        [topic] = huge_commit.topics
        [part] = topic.partitions
        parts = (
            replace(part, committed_metadata="m" * 5_000_000),
            replace(part, partition_index=1),
        )
        response = await rig.ask(
            replace(huge_commit, topics=(replace(topic, partitions=parts),)), 9
        )
        assert [each.error_code for each in response.topics[0].partitions] == [
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            0,
        ]

    run(test, machine)


def first_code(response: Any) -> int:
    """The error code of a response, wherever it is."""
    code = int(getattr(response, "error_code", 0))
    for name in ("results", "topics", "partitions", "groups"):
        parts = getattr(response, name, ())
        if parts and not code:
            return first_code(parts[0])
    return code


CHANGES: dict[str, Request] = {
    "join": join("m"),
    "sync": sync("m", 1),
    "leave": LeaveGroupRequest(group_id=HERE, members=(MemberIdentity(member_id="m"),)),
    "commit": commit("m", 1),
    "delete": DeleteGroupsRequest(groups_names=(HERE,)),
    "delete offsets": OffsetDeleteRequest(group_id=HERE),
}
READS: dict[str, Request] = {
    "fetch": OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE),)),
    "describe": DescribeGroupsRequest(groups=(HERE,)),
    "list": ListGroupsRequest(),
}


@pytest.mark.parametrize("name", [*CHANGES, *READS])
def test_without_enough_replicas_a_group_can_be_read_and_not_changed(name: str) -> None:
    async def test(rig: GroupRig) -> None:
        member_id = await stable_member(rig)
        await rig.replicas.change(
            ConfigChanged(
                resource_type=int(ResourceType.TOPIC),
                resource_name=CONSUMER_OFFSETS,
                name="min.insync.replicas",
                value="2",
            )
        )
        alone = replace(led(2, isr=(NODE, OTHER)), isr=(NODE,), leader_epoch=1)
        await rig.replicas.set_state(CONSUMER_OFFSETS, 0, alone)
        request = {**CHANGES, **READS}[name]
        code = first_code(await rig.ask(request, 9 if name == "commit" else None))
        assert code == (NOT_AVAILABLE if name in CHANGES else 0)
        assert (await rig.ask(beat(member_id, 1))).error_code == 0
        await rig.replicas.set_state(CONSUMER_OFFSETS, 0, replace(alone, isr=(NODE, OTHER)))
        committing = asyncio.create_task(rig.ask(commit(member_id, 1), 9))
        await until(lambda: rig.runtime.metrics.records_written == 2)
        rig.replicas.replicate(CONSUMER_OFFSETS)
        assert first_code(await committing) == 0

    run(test, machine)
