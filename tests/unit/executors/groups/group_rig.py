"""A group state machine with a log and a clock, and short forms of the requests to it."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    Decision,
    Now,
    TransactionalProducer,
)
from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.executors.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from sparklog.slices import are_slices, run_through
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
)
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparklog.wire.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from sparklog.wire.protocol.schema import Request, Response

GROUP = "readers"
START_MS = 1_000_000
#: The wall clock is ahead of the monotonic clock by this.
WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
CONFIG = GroupConfig()


def subscription(*topics: str) -> bytes:
    """A ``ConsumerProtocolSubscription`` of version 1 without owned partitions."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    empty_user_data, no_partitions = b"\xff\xff\xff\xff", bytes(4)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + names + empty_user_data + no_partitions


RANGE = JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))
STICKY = JoinGroupRequestProtocol(name="sticky", metadata=subscription("orders"))


class GroupRig:
    """A loaded state machine whose records are replayed at once, as the runtime does."""

    def __init__(self, config: GroupConfig = CONFIG, log: Iterable[CoordinatorRecord] = ()) -> None:
        self.config = config
        self.log: list[CoordinatorRecord] = list(log)
        self.now_ms = START_MS
        self._ids = count(1)
        self._request_ids = count(1)
        self.last_request_id = 0
        self.responses: dict[int, Response | KafkaError] = {}
        self.load()

    @property
    def now(self) -> Now:
        return Now(monotonic_ms=self.now_ms, wall_ms=WALL_MS + self.now_ms)

    def load(self) -> None:
        """Begin with a new state machine that replays the log."""
        self.machine = self.new_machine()
        for record in self.log:
            self.machine.replay(record)
        self.machine.loaded(self.now)
        self.machine.check_invariants()

    def new_machine(self) -> GroupStateMachine:
        return GroupStateMachine(self.config, lambda: f"uuid{next(self._ids)}")

    def decide(
        self,
        body: Request,
        version: int,
        *,
        client: str = "app",
        host: str = "/h",
        producer: TransactionalProducer | None = None,
    ) -> Decision:
        """The decision on a request; its records are not replayed."""
        self.last_request_id = next(self._request_ids)
        request = CoordinatorRequest(
            request_id=self.last_request_id,
            body=body,
            version=version,
            client_id=client,
            client_host=host,
            producer=producer,
        )
        return self.machine.handle(request, self.now)

    def send(self, body: Request, version: int, **context: Any) -> Decision:
        return self.apply(self.decide(body, version, **context))

    def send_in_transaction(
        self, producer: TransactionalProducer, body: Request, version: int
    ) -> Decision:
        """Send a request of a producer's transaction, whose records stay pending."""
        decision = self.decide(body, version, producer=producer)
        for record in decision.records:
            self.machine.replay_in_transaction(record, producer.producer_id)
        self.apply(decision._replace(records=()))
        return decision

    def ask(self, body: Request, version: int, **context: Any) -> Any:
        """The response to a request that is answered by itself and writes nothing."""
        decision = self.send(body, version, **context)
        assert decision.records == ()
        (completion,) = decision.completions
        return self.responses[completion.request_id]

    def advance(self, duration_ms: int) -> Decision:
        """Let time pass in one step."""
        self.now_ms += duration_ms
        return self.apply(self.machine.pass_time(self.now))

    def apply(self, decision: Decision) -> Decision:
        for record in decision.records:
            self.machine.replay(record)
        self.log.extend(decision.records)
        for completion in decision.completions:
            assert completion.request_id not in self.responses, "a request is answered once"
            response: Any = completion.response
            if are_slices(response):
                response = run_through(response)
            self.responses[completion.request_id] = response
        self.machine.check_invariants()
        return decision

    # -- a group that comes to a state

    def new_member(self, **fields: Any) -> str:
        """The id of a member that was asked to join with it."""
        response = self.ask(join(**fields), 9)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return str(response.member_id)

    def stable(self, members: int = 1, **fields: Any) -> list[str]:
        """The ids of the members of a new stable group; the first one is the leader."""
        ids = [self.new_member(**fields) for _ in range(members)]
        for member_id in ids:
            self.send(join(member_id, **fields), 9)
        self.finish_initial_rebalance()
        assignments = {each: f"of {each}".encode() for each in ids}
        for member_id in reversed(ids):
            self.send(sync(member_id, 1, assignments if member_id == ids[0] else None), 5)
        return ids

    def finish_initial_rebalance(self) -> list[JoinGroupResponse]:
        """Let the initial delay pass in its steps; the responses to the members that waited."""
        for _ in range(1 + REBALANCE_MS // max(self.config.initial_rebalance_delay_ms, 1)):
            decision = self.advance(self.config.initial_rebalance_delay_ms)
            if decision.completions:
                return responses_of(decision)
        raise AssertionError("the initial rebalance does not end")

    def described(self, group_id: str = GROUP) -> DescribedGroup:
        response = self.ask(DescribeGroupsRequest(groups=(group_id,)), 6)
        (group,) = response.groups
        assert isinstance(group, DescribedGroup)
        return group

    @property
    def state(self) -> str:
        return self.described().group_state


def responses_of(decision: Decision) -> list[Any]:
    return [each.response for each in decision.completions]


def answer(request_id: int, response: Response, at_once: bool = False) -> Decision:
    """A decision that only answers."""
    completion = Completion(request_id=request_id, response=response, at_once=at_once)
    return Decision(completions=(completion,))


def join(
    member_id: str = "",
    *,
    group: str = GROUP,
    instance: str | None = None,
    protocols: tuple[JoinGroupRequestProtocol, ...] = (RANGE,),
    protocol_type: str = CONSUMER_PROTOCOL_TYPE,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=protocols,
    )


def sync(
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group: str = GROUP,
    instance: str | None = None,
    protocol_type: str | None = None,
    protocol: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in (assignments or {}).items()
        ),
    )


def heartbeat(
    member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
    )


def leave(*members: MemberIdentity | str, group: str = GROUP) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        members=tuple(
            MemberIdentity(member_id=each) if isinstance(each, str) else each for each in members
        ),
    )


def commit(
    offsets: dict[tuple[str, int], int],
    member_id: str = "",
    generation: int = -1,
    *,
    group: str = GROUP,
    metadata: str | None = None,
    **fields: Any,
) -> OffsetCommitRequest:
    topics = dict.fromkeys(topic for topic, _ in offsets)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                    for (topic, partition), offset in offsets.items()
                    if topic == name
                ),
            )
            for name in topics
        ),
        **fields,
    )


def fetch_all(group: str = GROUP) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group),))


def fetch(*partitions: tuple[str, int], group: str = GROUP) -> OffsetFetchRequest:
    topics = dict.fromkeys(topic for topic, _ in partitions)
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=group,
                topics=tuple(
                    OffsetFetchRequestTopics(
                        name=name,
                        partition_indexes=tuple(p for topic, p in partitions if topic == name),
                    )
                    for name in topics
                ),
            ),
        )
    )


def fetched(rig: GroupRig, group: str = GROUP) -> dict[tuple[str, int], int]:
    """All committed offsets of a group."""
    (found,) = rig.ask(fetch_all(group), 9).groups
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
    }
