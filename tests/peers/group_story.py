"""One story of a consumer group, told to Kafka and to us, member by member.

Owns: a connection for each member on either side, and the names of member ids.  Either side makes
up its own member ids: a story calls a member by a name, and both answers are compared by names.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from sparklog.wire.protocol.schema import Request
from tests.peers.both import Both, Side, check
from tests.peers.comparison import differences, plain
from tests.peers.deviations import Deviation
from tests.support.waiting import wait_for

#: A member's name -> its id on the side that is asked; other names stand for themselves.
Ids = Callable[[str], str]
Asked = Callable[[Ids], Request]
SESSION_MS, REBALANCE_MS = 30_000, 20_000
NEWEST_JOIN, NEWEST_SYNC, NEWEST_LEAVE = 9, 5, 5
NO_ERROR = 0


class GroupStory:
    """A group, and its members by name.  ``close`` ends their connections."""

    def __init__(self, both: Both, group: str) -> None:
        self.group = group
        self._both = both
        self._ids: dict[str, dict[str, str]] = {side.name: {} for side in both.sides}
        self._members: dict[str, tuple[Side, Side]] = {}
        await_coordinator(both, group)

    def close(self) -> None:
        for sides in self._members.values():
            for side in sides:
                side.close()

    def tell(self, member: str, asked: Asked, version: int) -> None:
        """Ask both; the answers come later."""
        for side in self._sides(member):
            ids = self._ids[side.name]
            side.tell(asked(lambda name, ids=ids: ids.get(name, name)), version)  # type: ignore[misc]

    def hear(
        self,
        member: str,
        kind: type[Request],
        version: int,
        *meant: Deviation,
        where: Iterable[str] = (),
    ) -> Any:
        """The answers to what was told, which must be the same.  Returns ours."""
        found = []
        for side in self._sides(member):
            response = side.hear(kind, version)
            assert response is not None, f"{side.name} closed the connection of {member}"
            if kind is JoinGroupRequest and response.member_id:
                self._ids[side.name].setdefault(member, response.member_id)
            found.append(response)
        kafka, ours = (
            self._named(side, plain(response, {i: n for n, i in side.ids.items()}))
            for side, response in zip(self._both.sides, found, strict=True)
        )
        check(differences(kafka, ours), meant, where, f"{kind.__name__} v{version} of {member}")
        return found[1]

    def same(
        self,
        member: str,
        asked: Asked,
        version: int,
        *meant: Deviation,
        where: Iterable[str] = (),
    ) -> Any:
        """Ask both, and compare the answers.  Returns ours."""
        self.tell(member, asked, version)
        kind = type(asked(str))
        return self.hear(member, kind, version, *meant, where=where)

    def await_error(self, member: str, asked: Asked, version: int, code: int) -> None:
        """Ask each of both until it answers with the error ``code``."""
        for side in self._sides(member):
            ids = self._ids[side.name]
            request = asked(lambda name, ids=ids: ids.get(name, name))  # type: ignore[misc]

            def answers(side: Side = side, request: Request = request) -> bool:
                return bool(side.exchange(request, version).error_code == code)

            wait_for(answers)

    def id_of(self, member: str) -> str:
        """A member's id on our side."""
        return self._ids["ours"][member]

    def forget(self, member: str) -> None:
        """The next answer gives this member another id."""
        for ids in self._ids.values():
            ids.pop(member, None)

    def _sides(self, member: str) -> tuple[Side, Side]:
        if member not in self._members:
            kafka, ours = (Side(s.name, s.addresses, s.ids) for s in self._both.sides)
            self._members[member] = kafka, ours
        return self._members[member]

    def _named(self, side: Side, value: Any) -> Any:
        names = {member_id: name for name, member_id in self._ids[side.name].items()}
        return _renamed(value, names)

    # -- what most stories are made of

    def join(self, name: str, version: int = NEWEST_JOIN, **more: Any) -> Asked:
        return lambda ids: JoinGroupRequest(
            **{
                "group_id": self.group,
                "member_id": ids(name) if ids(name) != name else "",
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": protocols("range"),
                **more,
            }
        )

    def enter(self, name: str, version: int = NEWEST_JOIN, **more: Any) -> Any:
        """Join as the only member, or as one for which the others are asked to join again."""
        self.begin_entering(name, version, **more)
        return self.hear(name, JoinGroupRequest, version)

    def begin_entering(self, name: str, version: int = NEWEST_JOIN, **more: Any) -> None:
        """Get a member id where that is asked for, and join; the answer comes later."""
        asked = self.join(name, version, **more)
        if version >= 4 and not more.get("group_instance_id"):
            self.same(name, asked, version)
        self.tell(name, asked, version)

    def sync(
        self, name: str, generation: int, assigned: dict[str, bytes] | None = None, **more: Any
    ) -> Asked:
        return lambda ids: SyncGroupRequest(
            **{
                "group_id": self.group,
                "generation_id": generation,
                "member_id": ids(name),
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": tuple(
                    SyncGroupRequestAssignment(member_id=ids(member), assignment=data)
                    for member, data in (assigned or {}).items()
                ),
                **more,
            }
        )

    def beat(self, name: str, generation: int, **more: Any) -> Asked:
        return lambda ids: HeartbeatRequest(
            **{
                "group_id": self.group,
                "generation_id": generation,
                "member_id": ids(name),
                **more,
            }
        )

    def leave(self, name: str, version: int = NEWEST_LEAVE, **more: Any) -> Asked:
        return lambda ids: (
            LeaveGroupRequest(group_id=self.group, member_id=ids(name))
            if version < 3
            else LeaveGroupRequest(
                group_id=self.group, members=(MemberIdentity(member_id=ids(name), **more),)
            )
        )

    def described(self, version: int = 6) -> Any:
        return self.same(
            "describer", lambda _: DescribeGroupsRequest(groups=(self.group,)), version
        )


def protocols(*names: str, metadata: bytes = b"\x00\x00") -> tuple[JoinGroupRequestProtocol, ...]:
    return tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names)


def await_coordinator(both: Both, group: str) -> None:
    """Wait until either side has a coordinator for the group that has loaded its partition."""
    request = FindCoordinatorRequest(coordinator_keys=(group,))
    for side in both.sides:

        def found(side: Side = side) -> bool:
            [coordinator] = side.exchange(request, 6).coordinators
            return bool(coordinator.error_code == NO_ERROR)

        def serves(side: Side = side) -> bool:
            asked = DescribeGroupsRequest(groups=(group,))
            [described] = side.exchange(asked, 5).groups
            return bool(described.error_code == NO_ERROR)

        wait_for(found)
        wait_for(serves)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        renamed = {names.get(k, k): _renamed(each, names) for k, each in value.items()}
        if set(renamed) and all(key.startswith("[") for key in renamed):
            return _by_member(renamed)
        return renamed
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def _by_member(items: dict[str, Any]) -> dict[str, Any]:
    """Members of a group have no order: by their names instead of by their numbers."""
    values = list(items.values())
    if not all(isinstance(each, dict) and "member_id" in each for each in values):
        return items
    return {f"[{each['member_id']}]": each for each in values}
