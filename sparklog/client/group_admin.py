"""Administration of consumer groups: their states, members, committed offsets and lag.

Owns: the requests of tools about groups and their results as values.  Must not know how a
coordinator decides, nor how a member works.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.coordinators import Coordinators
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline, check, kafka_error, retry
from sparklog.client.groups import (
    CONSUMER_PROTOCOL_TYPE,
    OFFSETS_NAMES_UNTIL,
    GroupIdentity,
    OffsetAndMetadata,
    commit_request,
    committed_offsets,
    decode_assignment,
)
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
)
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

T = TypeVar("T")

#: Time limit in seconds for log ends; the log ends of partitions without a leader are left out.
LOG_END_S_MAX: Final = 5.0
#: The state of a group that does not exist, before DescribeGroups v6 (KIP-1043).
_DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the list of all groups.

    ``state`` and ``type`` are Kafka's names (``Stable``, ``Empty``; ``Classic``), empty if the
    coordinator does not tell.  ``coordinator`` is a node id.
    """

    group_id: str
    state: str
    type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberDescription:
    """A member of a group; ``assignment`` is empty for groups that are no consumer groups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its members.  ``assignor`` is empty unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMemberDescription, ...]

    @property
    def has_members(self) -> bool:
        return bool(self.members)

    @property
    def owners(self) -> dict[TopicPartition, GroupMemberDescription]:
        """The member that each assigned partition belongs to."""
        return {tp: member for member in self.members for tp in member.assignment}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The progress of a group in a partition.

    ``committed`` is the next offset to read; None without a commit.  ``log_end`` is the offset
    behind the last record; None if no leader answered in time.
    """

    committed: int | None
    log_end: int | None
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset and the log end; None if either is not known."""
        if self.committed is None or self.log_end is None:
            return None
        return max(self.log_end - self.committed, 0)


class GroupAdmin:
    """Requests about consumer groups, each to the group's coordinator.

    Every call raises KafkaError for a refusal and ConnectError when no node responds.  Calls wait
    for a coordinator that moves or loads, until ``timeout_s`` is over.
    """

    def __init__(self, cluster: ClusterClient, *, timeout_s: float = 60.0) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._coordinators = Coordinators(cluster)
        self._log_ends = DataClient(cluster)

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> dict[str, GroupListing]:
        """The groups of all brokers by id; ``states`` and ``types`` choose among them."""
        deadline = Deadline(self.timeout_s)
        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        answers: dict[int, ListGroupsResponse] = {}

        async def ask(node_id: int) -> None:
            response: ListGroupsResponse = await self.cluster.ask(request, deadline, node_id)
            check(response.error_code, f"node {node_id} cannot list its groups")
            answers[node_id] = response

        async def attempt() -> None:
            await self.cluster.refresh((), deadline)
            nodes = [node for node in self.cluster.view.nodes if node not in answers]
            failures = await asyncio.gather(*map(ask, nodes), return_exceptions=True)
            for failure in failures:
                if failure is not None:
                    raise failure

        await retry(attempt, deadline)
        found = {
            each.group_id: GroupListing(
                group_id=each.group_id,
                state=each.group_state,
                type=each.group_type,
                protocol_type=each.protocol_type,
                coordinator=node_id,
            )
            for node_id, response in answers.items()
            for each in response.groups
        }
        return dict(sorted(found.items()))

    async def describe_groups(
        self, group_ids: Iterable[str], *, skip_unknown: bool = False
    ) -> dict[str, GroupDescription]:
        """Describe groups; ``skip_unknown`` leaves out groups that do not exist.

        Raises KafkaError (GROUP_ID_NOT_FOUND) for the first unknown group otherwise.
        """

        async def call(
            node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, GroupDescription | KafkaError]:
            request = DescribeGroupsRequest(groups=ids)
            response = await _ask(connection, request, deadline)
            return {each.group_id: _described(each, node_id) for each in response.groups}

        found = await self._coordinators.ask(group_ids, call, Deadline(self.timeout_s))
        return {
            group_id: _value(answer)
            for group_id, answer in found.items()
            if not (skip_unknown and _is_unknown(answer))
        }

    async def group_offsets(
        self, group_id: str, also: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupOffset]:
        """Committed offset, log end and lag of every partition that the group has committed.

        ``also`` names partitions that are in the result even if nothing is committed for them.  A
        group that does not exist has no offsets.
        """
        return (await self.offsets_of_groups({group_id: also}))[group_id]

    async def offsets_of_groups(
        self, also: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """``group_offsets`` of several groups, by group; each log end is asked for once."""

        async def call(
            _node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, dict[TopicPartition, OffsetAndMetadata | None] | KafkaError]:
            found: dict[str, dict[TopicPartition, OffsetAndMetadata | None] | KafkaError] = {}
            for group_id in ids:
                request = OffsetFetchRequest(
                    group_id=group_id,
                    topics=None,
                    groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),),
                )
                response = await _ask(connection, request, deadline, at_most=OFFSETS_NAMES_UNTIL)
                try:
                    found[group_id] = committed_offsets(response, ())
                except KafkaError as error:
                    found[group_id] = error
            return found

        deadline = Deadline(self.timeout_s)
        answers = await self._coordinators.ask(also, call, deadline)
        committed = {
            group_id: dict.fromkeys(also[group_id]) | _value(answer)
            for group_id, answer in answers.items()
        }
        ends = await self._find_log_ends({tp for each in committed.values() for tp in each})
        return {
            group_id: {tp: _offset(each, ends.get(tp)) for tp, each in sorted(offsets.items())}
            for group_id, offsets in committed.items()
        }

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group without members; a group that does not exist is created.

        Raises KafkaError: UNKNOWN_MEMBER_ID when the group has members, and the error of the first
        refused partition; the other partitions have their new offsets then.
        """
        committed = {
            tp: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(offset=each)
            for tp, each in offsets.items()
        }
        if not committed:
            return
        request = commit_request(GroupIdentity(group_id=group_id), committed)

        async def call(
            _node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, KafkaError | None]:
            response = await _ask(connection, request, deadline, at_most=OFFSETS_NAMES_UNTIL)
            refusal = _first_refusal(response, f"the group {group_id!r} did not take the offset of")
            if refusal is not None and refusal.code == ErrorCode.UNKNOWN_MEMBER_ID:
                refusal = KafkaError(
                    refusal.code, f"the group {group_id!r} has members; stop them first"
                )
            return dict.fromkeys(ids, refusal)

        await self._ask_one(group_id, call)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups and their committed offsets.

        Raises KafkaError for the first group that cannot be deleted: GROUP_ID_NOT_FOUND, or
        NON_EMPTY_GROUP while it has members.  The other groups are deleted then.
        """

        async def call(
            _node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, KafkaError | None]:
            response = await _ask(connection, DeleteGroupsRequest(groups_names=ids), deadline)
            return {
                each.group_id: _group_refusal(each.error_code, each.group_id)
                for each in response.results
            }

        found = await self._coordinators.ask(group_ids, call, Deadline(self.timeout_s))
        for refusal in found.values():
            _value(refusal)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Forget committed offsets of topics that the group's members do not read.

        Raises KafkaError: GROUP_ID_NOT_FOUND, or the error of the first refused partition, for
        example GROUP_SUBSCRIBED_TO_TOPIC; the other partitions have lost their offsets then.
        """
        numbers: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for tp in sorted(set(partitions)):
            part = OffsetDeleteRequestPartition(partition_index=tp.partition)
            numbers.setdefault(tp.topic, []).append(part)
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=tuple(
                OffsetDeleteRequestTopic(name=name, partitions=tuple(parts))
                for name, parts in numbers.items()
            ),
        )

        async def call(
            _node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, KafkaError | None]:
            response = await _ask(connection, request, deadline)
            words = f"the group {group_id!r} keeps the offset of"
            refusal = _group_refusal(response.error_code, group_id)
            return dict.fromkeys(ids, refusal or _first_refusal(response, words))

        await self._ask_one(group_id, call)

    async def _ask_one(self, group_id: str, call: Any) -> None:
        found = await self._coordinators.ask((group_id,), call, Deadline(self.timeout_s))
        _value(found[group_id])

    async def _find_log_ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        found = await self._log_ends.find_offsets(
            dict.fromkeys(sorted(partitions), int(OffsetSpec.LATEST)),
            isolation=Isolation.READ_UNCOMMITTED,
            timeout_s=min(self.timeout_s, LOG_END_S_MAX),
        )
        return {tp: each.offset for tp, each in found.items() if not isinstance(each, KafkaError)}


async def _ask(
    connection: Connection, request: Any, deadline: Deadline, *, at_most: int | None = None
) -> Any:
    timeout_s = max(deadline.left_s, 0.001)
    return await connection.request(request, timeout_s=timeout_s, at_most=at_most)


def _value(answer: T | KafkaError) -> T:
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _is_unknown(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code is ErrorCode.GROUP_ID_NOT_FOUND


def _offset(committed: OffsetAndMetadata | None, log_end: int | None) -> GroupOffset:
    if committed is None:
        return GroupOffset(committed=None, log_end=log_end)
    return GroupOffset(committed=committed.offset, log_end=log_end, metadata=committed.metadata)


def _described(group: DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code == ErrorCode.NONE and group.group_state == _DEAD and not group.members:
        return _not_found(group.group_id)
    if group.error_code:
        return _group_refusal(group.error_code, group.group_id) or _not_found(group.group_id)
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=node_id,
        members=tuple(
            GroupMemberDescription(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_assignment(member.member_assignment) if is_consumer else frozenset(),
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _assignment(data: bytes) -> frozenset[TopicPartition]:
    """The assigned partitions; none for an assignment that its client wrote malformed."""
    try:
        return decode_assignment(data)
    except DecodeError:
        return frozenset()


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")


def _group_refusal(code: int, group_id: str) -> KafkaError | None:
    """The refusal of a group as a whole; None for NONE."""
    if code == ErrorCode.NONE:
        return None
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return _not_found(group_id)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return kafka_error(code, f"the group {group_id!r} has members; stop them first")
    return kafka_error(code, f"the request about the group {group_id!r} was refused")


def _first_refusal(response: Any, words: str) -> KafkaError | None:
    """The first error of a partition of an OffsetCommit or OffsetDelete response."""
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                tp = TopicPartition(topic.name, part.partition_index)
                return kafka_error(part.error_code, f"{words} {tp}")
    return None
