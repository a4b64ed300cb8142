"""A group of the classic protocol: members, protocols, generation and state.

Owns: one group's volatile state and its consistency.  Must not know requests, responses, time or
other groups: rebalances drive it.  Kafka: ``ClassicGroup``.
"""

from collections import Counter
from collections.abc import Collection, Iterator

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from sparklog.executors.groups.group_state import PREVIOUS_STATES, GroupState
from sparklog.executors.groups.member import Member, WaitingRequest
from sparklog.executors.groups.record_schemas import NO_TIMESTAMP, GroupMetadataValue
from sparklog.executors.groups.timers import Timer
from sparklog.wire.protocol.messages.join_group import JoinGroupRequestProtocol


class ClassicGroup:
    """A group; change it through its methods.

    ``pending_joins`` are the timers of members that got their id with MEMBER_ID_REQUIRED and have
    not used it yet.  ``pending_syncs`` are the members of the generation that have not sent
    SyncGroup.  ``topics`` are the topics that the members subscribe to, or None if unknown.
    """

    __slots__ = (
        "_joins_waiting",
        "_supporters",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "instances",
        "join_timer",
        "leader_id",
        "members",
        "metadata_bytes",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "record_bytes",
        "state",
        "sync_timer",
        "topics",
    )

    def __init__(self, group_id: str, join_timer: Timer, sync_timer: Timer) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.current_state_timestamp_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.topics: frozenset[str] | None = None
        self.members: dict[str, Member] = {}
        #: Member id by instance id, of static members.
        self.instances: dict[str, str] = {}
        self.pending_joins: dict[str, Timer] = {}
        self.pending_syncs: set[str] = set()
        self.join_timer = join_timer
        self.sync_timer = sync_timer
        self.new_member_added = False
        #: The current step and the rest of the delay of an initial rebalance.
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        #: Sums over the members.
        self.metadata_bytes = 0
        self.record_bytes = 0
        self._joins_waiting = 0
        #: Members by protocol name.
        self._supporters: Counter[str] = Counter()

    # -- questions

    @property
    def has_all_members_joined(self) -> bool:
        return self._joins_waiting == len(self.members) and not self.pending_joins

    @property
    def joins_waiting(self) -> int:
        return self._joins_waiting

    @property
    def is_initial_rebalance(self) -> bool:
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id is not None and self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may consume the topic; true if that cannot be known."""
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    def supports_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supporters[name] == count for name in names
        )

    def require_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has taken over the
                instance.
        """
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all members support.

        Of protocols with equal votes, the one whose first voter joined first is selected.
        """
        count = len(self.members)
        candidates = {name for name, number in self._supporters.items() if number == count}
        votes = Counter(each.vote(candidates) for each in self.members.values())
        return votes.most_common(1)[0][0]

    def timers(self) -> Iterator[Timer]:
        yield self.join_timer
        yield self.sync_timer
        yield from self.pending_joins.values()
        for member in self.members.values():
            yield member.session_timer

    def described(self) -> GroupMetadataValue:
        """The group as its record has it."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.current_state_timestamp_ms,
            members=tuple(each.described(self.protocol_name) for each in self.members.values()),
        )

    # -- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member whose protocols the group supports."""
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member)
        self._joins_waiting += member.join is not None

    def remove(self, member_id: str) -> Member:
        """Remove a member that has no request waiting.  The next member becomes leader."""
        member = self.members.pop(member_id)
        assert member.join is None
        assert member.sync is None
        self._uncount(member)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static(self, old: Member, new: Member) -> None:
        """Give a static member's place and assignment to a new member of the same instance."""
        assert old.instance_id is not None
        assert old.join is None
        assert old.sync is None
        self._uncount(old)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self.instances[old.instance_id] = new.member_id
        new.assignment = old.assignment
        new.set_protocols(old.protocols)
        self._count(new)
        if self.is_leader(old.member_id):
            self.leader_id = new.member_id
        self.pending_syncs.discard(old.member_id)

    def set_protocols(
        self, member: Member, protocols: tuple[JoinGroupRequestProtocol, ...]
    ) -> None:
        self._uncount(member)
        member.set_protocols(protocols)
        self._count(member)

    def wait_for_join(self, member: Member, request: WaitingRequest) -> None:
        """The member waits for the next generation; it has no other JoinGroup that waits."""
        assert member.join is None
        member.join = request
        self._joins_waiting += 1

    def end_join(self, member: Member) -> None:
        assert member.join is not None
        member.join = None
        self._joins_waiting -= 1

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that waits; false if no member waits."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join is not None:
            return True
        joined = next((each for each in self.members.values() if each.join is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def _count(self, member: Member) -> None:
        self._supporters.update(each.name for each in member.protocols)
        self.metadata_bytes += member.metadata_bytes
        self.record_bytes += member.record_bytes

    def _uncount(self, member: Member) -> None:
        self.metadata_bytes -= member.metadata_bytes
        self.record_bytes -= member.record_bytes
        for protocol in member.protocols:
            self._supporters[protocol.name] -= 1
            if not self._supporters[protocol.name]:
                del self._supporters[protocol.name]

    # -- states

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.state} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation with the members that there are."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.read_subscriptions()
        self.pending_syncs.clear()
        state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(state, wall_ms)

    def restore(self, value: GroupMetadataValue, members: Collection[Member]) -> None:
        """Become the group of a record; the group is new.  The members are those of the record."""
        assert not self.members
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = (value.protocol or "") if members else value.protocol
        self.current_state_timestamp_ms = value.current_state_timestamp
        self.leader_id = value.leader
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        for member in members:
            self.add(member, value.protocol_type)
        if self.leader_id not in self.members:
            self.leader_id = next(iter(self.members), None)
        self.protocol_type = value.protocol_type or None
        self.read_subscriptions()

    def read_subscriptions(self) -> None:
        """Find out the topics that the members of this generation subscribe to."""
        self.topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata_of(self.protocol_name))
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def check_invariants(self) -> None:
        """Assert what holds between events."""
        members = self.members.values()
        assert all(key == each.member_id for key, each in self.members.items())
        assert self._joins_waiting == sum(each.join is not None for each in members)
        assert self._supporters == Counter(p.name for each in members for p in each.protocols)
        assert self.instances == {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }
        assert self.metadata_bytes == sum(each.metadata_bytes for each in members)
        assert self.record_bytes == sum(each.record_bytes for each in members)
        assert self.pending_syncs <= self.members.keys()
        assert not self.pending_joins.keys() & self.members.keys()
        assert (self.leader_id in self.members) if self.members else self.leader_id is None
        joining = self.state is GroupState.PREPARING_REBALANCE
        completing = self.state is GroupState.COMPLETING_REBALANCE
        for member in members:
            assert member.session_timer.subject is not None
            assert member.join is None or joining
            assert member.sync is None or completing
            assert member.sync is None or member.member_id not in self.pending_syncs
        if self.state is GroupState.EMPTY:
            assert not members
        if completing or self.state is GroupState.STABLE:
            assert members
            assert self.protocol_name is not None
        if joining or (completing and self.pending_syncs):
            timer = self.join_timer if joining else self.sync_timer
            assert timer.deadline_ms is not None, "a rebalance ends by itself"
