"""The APIs of groups: what the state machine sees, and what clients get, in every version."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparklog.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparklog.wire.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from sparklog.wire.protocol.schema import Request
from tests.support.waiting import until
from tests.unit.executors.coordinator.group_rig import ELSEWHERE, HERE, GroupRig, run
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led

NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)


def versions(request_type: type[Request]) -> range:
    return range(request_type.MIN_VERSION, request_type.MAX_VERSION + 1)


def join(group_id: str = HERE) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"topics")
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="m",
        protocol_type="consumer",
        protocols=(protocol,),
    )


def sync(group_id: str = HERE) -> SyncGroupRequest:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=b"t-0")
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=3,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=(assignment,),
    )


@pytest.mark.parametrize("version", versions(JoinGroupRequest))
def test_join_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        name = None if version >= 7 else ""
        rig.script = lambda _: JoinGroupResponse(
            generation_id=3, protocol_name=name, leader="m", member_id="m"
        )
        response = await rig.ask(join(), version)
        assert (response.error_code, response.generation_id, response.leader) == (0, 3, "m")
        (seen,) = rig.seen
        assert isinstance(seen.body, JoinGroupRequest)
        assert (seen.version, seen.client_id, seen.client_host) == (version, "test", "/127.0.0.1")
        assert seen.body.protocols == join().protocols
        refused = await rig.ask(join(ELSEWHERE), version)
        assert (refused.error_code, refused.member_id) == (NOT_COORDINATOR, "m")
        empty = await rig.ask(join(""), version)
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID

    run(test)


@pytest.mark.parametrize("version", versions(SyncGroupRequest))
def test_sync_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda _: SyncGroupResponse(assignment=b"t-0")
        assert (await rig.ask(sync(), version)).assignment == b"t-0"
        (seen,) = rig.seen
        assert isinstance(seen.body, SyncGroupRequest)
        assert seen.body.assignments == sync().assignments
        refused = await rig.ask(sync(ELSEWHERE), version)
        assert (refused.error_code, refused.assignment) == (NOT_COORDINATOR, b"")
        assert (await rig.ask(sync(""), version)).error_code == ErrorCode.INVALID_GROUP_ID

    run(test)


def test_sync_group_names_its_protocol_from_v5_on() -> None:
    async def test(rig: GroupRig) -> None:
        unnamed = SyncGroupRequest(group_id=HERE, protocol_type="consumer")
        response = await rig.ask(unnamed, 5)
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await rig.ask(unnamed, 4)).error_code == 0

    run(test)


@pytest.mark.parametrize("version", versions(HeartbeatRequest))
def test_heartbeat(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda _: HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        beat = HeartbeatRequest(group_id=HERE, generation_id=3, member_id="m")
        assert (await rig.ask(beat, version)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        elsewhere = HeartbeatRequest(group_id=ELSEWHERE)
        assert (await rig.ask(elsewhere, version)).error_code == NOT_COORDINATOR
        rig.script = lambda _: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert (await rig.ask(beat, version)).error_code == 0
        rig.script = lambda _: KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        assert (await rig.ask(beat, version)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


@pytest.mark.parametrize("version", versions(LeaveGroupRequest))
def test_leave_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        code = int(ErrorCode.UNKNOWN_MEMBER_ID)
        rig.script = lambda _: LeaveGroupResponse(
            members=(MemberResponse(member_id="m", error_code=code),)
        )
        members = (MemberIdentity(member_id="m"),)
        leave = LeaveGroupRequest(group_id=HERE, member_id="m", members=members)
        response = await rig.ask(leave, version)
        (seen,) = rig.seen
        assert isinstance(seen.body, LeaveGroupRequest)
        assert [member.member_id for member in seen.body.members] == ["m"]
        if version < 3:
            assert response.error_code == code
        else:
            assert (response.error_code, response.members[0].error_code) == (0, code)
        rig.script = lambda _: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        assert await rig.ask(leave, version) == response
        elsewhere = LeaveGroupRequest(group_id=ELSEWHERE, member_id="m", members=members)
        refused = await rig.ask(elsewhere, version)
        assert refused == LeaveGroupResponse(error_code=NOT_COORDINATOR)
        rig.script = lambda _: LeaveGroupResponse(members=(MemberResponse(member_id="m"),))
        assert (await rig.ask(leave, version)).error_code == 0

    run(test)


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_describe_groups(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        def describe(request: CoordinatorRequest) -> DescribeGroupsResponse:
            assert isinstance(request.body, DescribeGroupsRequest)
            assert request.body.groups == (HERE,)
            return DescribeGroupsResponse(
                groups=(DescribedGroup(group_id=HERE, group_state="Stable"),)
            )

        rig.script = describe
        request = DescribeGroupsRequest(
            groups=(ELSEWHERE, HERE, ELSEWHERE), include_authorized_operations=True
        )
        other, group = (await rig.ask(request, version)).groups
        assert (other.group_id, other.error_code) == (ELSEWHERE, NOT_COORDINATOR)
        assert (group.group_id, group.error_code, group.group_state) == (HERE, 0, "Stable")
        unknown = -(2**31)
        expected = (unknown, 0b1101_0100_1000) if version >= 3 else (unknown, unknown)
        assert (other.authorized_operations, group.authorized_operations) == expected

    run(test)


@pytest.mark.parametrize("version", versions(DeleteGroupsRequest))
def test_delete_groups(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        code = int(ErrorCode.NON_EMPTY_GROUP)
        rig.script = lambda request: DeleteGroupsResponse(
            results=tuple(
                DeletableGroupResult(group_id=group_id, error_code=code)
                for group_id in request.body.groups_names  # type: ignore[attr-defined]
            )
        )
        request = DeleteGroupsRequest(groups_names=(HERE, ELSEWHERE, HERE))
        response = await rig.ask(request, version)
        assert [(each.group_id, each.error_code) for each in response.results] == [
            (HERE, code),
            (ELSEWHERE, NOT_COORDINATOR),
        ]
        assert len(rig.seen) == 1

    run(test)


@pytest.mark.parametrize("version", versions(ListGroupsRequest))
def test_list_groups(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda _: ListGroupsResponse(groups=(ListedGroup(group_id=HERE),))
        response = await rig.ask(ListGroupsRequest(states_filter=("Stable",)), version)
        assert response == ListGroupsResponse(groups=(ListedGroup(group_id=HERE),))
        (seen,) = rig.seen
        assert isinstance(seen.body, ListGroupsRequest)
        assert seen.body.states_filter == (("Stable",) if version >= 4 else ())
        rig.script = lambda _: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        response = await rig.ask(ListGroupsRequest(), version)
        assert response == ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        rig.script = lambda _: KafkaError(ErrorCode.NOT_COORDINATOR)
        assert await rig.ask(ListGroupsRequest(), version) == ListGroupsResponse()
        rig.script = lambda _: ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = await rig.ask(ListGroupsRequest(), version)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_list_groups_asks_every_shard_of_the_broker() -> None:
    async def test(rig: GroupRig) -> None:
        await rig.replicas.set_state("__consumer_offsets", 1, led(2))
        await until(lambda: rig.runtime.as_json()["active_shards"] == 2)
        names = iter(("a", "b"))
        rig.script = lambda _: ListGroupsResponse(groups=(ListedGroup(group_id=next(names)),))
        response = await rig.ask(ListGroupsRequest())
        assert [group.group_id for group in response.groups] == ["a", "b"]

    run(test)


def test_a_join_that_waits_holds_the_later_responses_of_its_connection() -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda request: (
            None if isinstance(request.body, JoinGroupRequest) else HeartbeatResponse()
        )
        client = await rig.connect()
        joining = asyncio.create_task(rig.ask(join(), client=client))
        await until(lambda: len(rig.seen) == 1)
        beating = asyncio.create_task(rig.ask(HeartbeatRequest(group_id=HERE), client=client))
        await until(lambda: len(rig.seen) == 2)
        assert not beating.done()
        await rig.replicas.set_state(
            "__consumer_offsets", 0, led(2, leader=OTHER, isr=(NODE, OTHER))
        )
        assert (await joining).error_code == NOT_COORDINATOR
        assert (await beating).error_code == 0

    run(test)


@pytest.mark.parametrize("half", [False, True])
def test_a_client_that_closes_its_connection_is_withdrawn(half: bool) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda _: None
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
        payload = encode_request(join(), 9, 1, "test")
        writer.write(len(payload).to_bytes(4, "big") + payload)
        await until(lambda: len(rig.seen) == 1)
        if half:
            writer.write_eof()
        else:
            writer.close()
        (machine,) = rig.machines
        await until(lambda: machine.withdrawn == [rig.seen[0].request_id])
        if half:
            await reader.read()  # the broker closes its half too
            writer.close()
        assert machine.waiting == []

    run(test)


def framed(request: Request) -> bytes:
    payload = encode_request(request, type(request).MAX_VERSION, 1, "test")
    return len(payload).to_bytes(4, "big") + payload


def long_commit() -> OffsetCommitRequest:
    """A commit that is handled in slices, so that requests behind it wait for their turn."""
    parts = tuple(OffsetCommitRequestPartition(partition_index=each % 2) for each in range(3000))
    return OffsetCommitRequest(
        group_id=HERE, topics=(OffsetCommitRequestTopic(name="t", partitions=parts),)
    )


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_requests_behind_a_join_that_waits_are_withdrawn_with_it(half: bool, long: bool) -> None:
    """All of them come together with the end of the connection."""

    async def test(rig: GroupRig) -> None:
        rig.script = lambda request: (
            None if isinstance(request.body, JoinGroupRequest) else OffsetCommitResponse()
        )
        _, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
        between = (replace(long_commit(), topics=()),) if not long else (long_commit(),)
        writer.write(b"".join(framed(each) for each in (join(), *between, join(), join())))
        if half:
            writer.write_eof()
        else:
            writer.close()
        (machine,) = rig.machines
        await until(lambda: len(machine.withdrawn) == 3)
        assert machine.waiting == []
        await until(lambda: not rig.server.connections)
        writer.close()

    run(test)


def test_a_request_whose_topic_does_not_exist_is_told_to_look_elsewhere() -> None:
    async def test(rig: GroupRig) -> None:
        await rig.replicas.delete("__consumer_offsets")
        requests: tuple[tuple[Request, Any], ...] = (
            (join(), lambda r: r.error_code),
            (DescribeGroupsRequest(groups=("a",)), lambda r: r.groups[0].error_code),
            (DeleteGroupsRequest(groups_names=("a",)), lambda r: r.results[0].error_code),
        )
        for request, code in requests:
            assert code(await rig.ask(request)) == NOT_COORDINATOR
        assert await rig.ask(ListGroupsRequest()) == ListGroupsResponse()

    run(test)


def test_many_groups_are_described_in_slices() -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda request: DescribeGroupsResponse(
            groups=tuple(
                DescribedGroup(group_id=each)
                for each in request.body.groups  # type: ignore[attr-defined]
            )
        )
        names = tuple(f"g{number}" for number in range(3000))
        response = await rig.ask(DescribeGroupsRequest(groups=names))
        assert [group.group_id for group in response.groups] == list(names)
        codes = {group.error_code for group in response.groups}
        assert codes == {0, NOT_COORDINATOR}

    run(test)
