"""DescribeGroups, ListGroups and DeleteGroups."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.record_schemas import OffsetCommitKey
from sparklog.executors.groups.records import group_record, offset_record
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.unit.executors.groups.group_rig import (
    GROUP,
    RANGE,
    GroupRig,
    commit,
    fetched,
    join,
    responses_of,
)


def test_a_stable_group_is_described_with_its_protocol() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    assert rig.described() == DescribedGroup(
        group_id=GROUP,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(
            DescribedGroupMember(
                member_id=leader,
                client_id="app",
                client_host="/h",
                member_metadata=RANGE.metadata,
                member_assignment=f"of {leader}".encode(),
            ),
        ),
    )


def test_a_group_that_rebalances_is_described_without_metadata() -> None:
    rig = GroupRig()
    rig.send(join(instance="i"), 9)
    assert rig.described() == DescribedGroup(
        group_id=GROUP,
        group_state="PreparingRebalance",
        protocol_type="consumer",
        members=(
            DescribedGroupMember(
                member_id="i-uuid1", group_instance_id="i", client_id="app", client_host="/h"
            ),
        ),
    )


@pytest.mark.parametrize("version", [5, 6])
def test_an_unknown_group_is_dead_and_since_version_6_an_error(version: int) -> None:
    found = DescribedGroup(group_id="g", group_state="Dead")
    if version == 6:
        found = DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message="Group g not found.",
            group_id="g",
            group_state="Dead",
        )
    response = GroupRig().ask(DescribeGroupsRequest(groups=("g",)), version)
    assert response == DescribeGroupsResponse(groups=(found,))


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), ["readers", "simple"]),
        (("stable",), (), ["readers"]),
        (("EMPTY", " Dead "), (), ["simple"]),
        (("PreparingRebalance",), (), []),
        (("unknown",), (), []),
        ((), ("Classic",), ["readers", "simple"]),
        ((), ("classic", "consumer"), ["readers", "simple"]),
        ((), ("consumer",), []),
        (("stable",), ("classic",), ["readers"]),
    ],
)
def test_groups_are_listed_by_state_and_type(
    states: tuple[str, ...], types: tuple[str, ...], found: list[str]
) -> None:
    rig = GroupRig()
    rig.stable()
    rig.send(commit({("t", 0): 1}, group="simple"), 9)
    every = {
        "readers": ListedGroup(
            group_id="readers",
            protocol_type="consumer",
            group_state="Stable",
            group_type="classic",
        ),
        "simple": ListedGroup(group_id="simple", group_state="Empty", group_type="classic"),
    }
    body = ListGroupsRequest(states_filter=states, types_filter=types)
    assert rig.ask(body, 5) == ListGroupsResponse(groups=tuple(every[each] for each in found))


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    rig = GroupRig()
    rig.send(commit({("t", 0): 1, ("t", 1): 2}), 9)
    decision = rig.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    assert decision.records == (
        *(
            offset_record(OffsetCommitKey(group=GROUP, topic="t", partition=each), None)
            for each in range(2)
        ),
        group_record(GROUP, None),
    )
    assert responses_of(decision) == [
        DeleteGroupsResponse(results=(DeletableGroupResult(group_id=GROUP),))
    ]
    assert (rig.state, fetched(rig)) == ("Dead", {})
    rig.load()
    assert (rig.state, fetched(rig)) == ("Dead", {})


def test_a_group_with_members_is_not_deleted() -> None:
    rig = GroupRig()
    rig.stable()
    refused = DeletableGroupResult(group_id=GROUP, error_code=ErrorCode.NON_EMPTY_GROUP)
    response = rig.ask(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    assert response == DeleteGroupsResponse(results=(refused,))


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("g", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
        ("g" * 40_000, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_an_unknown_group_is_not_deleted(group: str, code: ErrorCode) -> None:
    response = GroupRig().ask(DeleteGroupsRequest(groups_names=(group,)), 2)
    refused = DeletableGroupResult(group_id=group, error_code=code)
    assert response == DeleteGroupsResponse(results=(refused,))


def test_a_member_to_be_cannot_join_a_group_that_was_deleted() -> None:
    rig = GroupRig()
    rig.send(commit({("t", 0): 1}), 9)
    member_id = rig.new_member()
    rig.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    assert rig.ask(join(member_id), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.advance(1_000_000).records == ()


def test_a_request_of_another_coordinator_is_refused() -> None:
    rig = GroupRig()
    request = CoordinatorRequest(
        request_id=1,
        body=InitProducerIdRequest(),
        version=0,
        client_id="app",
        client_host="/h",
    )
    (completion,) = rig.machine.handle(request, rig.now).completions
    assert getattr(completion.response, "code", None) == ErrorCode.UNSUPPORTED_VERSION
