"""DescribeGroups and ListGroups.

Owns: the responses to DescribeGroups 0 to 6 and ListGroups 0 to 5.  Must not change a group.
"""

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.texts import fits_record
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUP_TYPE = "classic"
#: DescribeGroups versions from which an unknown group is an error (KIP-1043).
_NOT_FOUND_FROM = 6


class Listing:
    """Answers DescribeGroups and ListGroups requests."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups

    def describe(
        self, request: CoordinatorRequest, body: DescribeGroupsRequest, draft: DecisionDraft
    ) -> None:
        groups = tuple(self._described(each, request.version) for each in body.groups)
        draft.respond(request.request_id, DescribeGroupsResponse(groups=groups))

    def _described(self, group_id: str, version: int) -> DescribedGroup:
        if not fits_record(group_id):
            return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        group = self._groups.find(group_id)
        if group is not None:
            return _described_group(group)
        dead = GroupState.DEAD.value
        if version < _NOT_FOUND_FROM:
            return DescribedGroup(group_id=group_id, group_state=dead)
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found.",
            group_id=group_id,
            group_state=dead,
        )

    def list_groups(
        self, request: CoordinatorRequest, body: ListGroupsRequest, draft: DecisionDraft
    ) -> None:
        """Every group in the wanted states, if the wanted types include the classic one."""
        states = {each.strip().lower() for each in body.states_filter}
        types = {each.strip().lower() for each in body.types_filter}
        listed: tuple[ListedGroup, ...] = ()
        if not types or GROUP_TYPE in types:
            wanted = {each for each in GroupState if not states or each.lower() in states}
            listed = tuple(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=GROUP_TYPE,
                )
                for group in self._groups
                if group.state in wanted
            )
        draft.respond(request.request_id, ListGroupsResponse(groups=listed))


def _described_group(group: ClassicGroup) -> DescribedGroup:
    """Only a stable group tells its protocol and the members' metadata."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata_of(group.protocol_name) if is_stable else b"",
                member_assignment=each.assignment,
            )
            for each in group.members.values()
        ),
    )
