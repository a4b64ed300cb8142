"""The groups of a state machine: the durable part of each, and the live group made from it.

Owns: which groups exist, and ``replay``.  Must not know requests.

The durable part is the last record of a group and its committed offsets.  A live group is volatile:
it is made from the durable part when the records are loaded, and then goes its own way between two
records.  Whenever it is Empty or Stable, the durable part says the same.
"""

from collections.abc import Iterator

from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.member import Member
from sparklog.executors.groups.offset_store import OffsetStore
from sparklog.executors.groups.rebalance import TimerKind, TimerSubject
from sparklog.executors.groups.record_schemas import GroupMetadataValue, MemberMetadata
from sparklog.executors.groups.records import GroupRecord, OffsetRecord
from sparklog.executors.groups.timers import Timer, TimerQueue
from sparklog.wire.protocol.messages.join_group import JoinGroupRequestProtocol


class GroupStore:
    """The groups and their offsets."""

    __slots__ = ("_durable", "_is_loaded", "_live", "_timers", "offsets")

    def __init__(self, timers: TimerQueue) -> None:
        self._durable: dict[str, GroupMetadataValue] = {}
        self._live: dict[str, ClassicGroup] = {}
        self._timers = timers
        self._is_loaded = False
        self.offsets = OffsetStore()

    def replay(self, record: OffsetRecord | GroupRecord) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
            if self._is_loaded and record.value is not None:
                self.find_or_create(record.key.group)
            return
        group_id = record.key.group
        if record.value is not None:
            self._durable[group_id] = record.value
            return
        self._durable.pop(group_id, None)
        if group_id in self._live:
            self._drop(self._live[group_id])

    def replay_in_transaction(self, record: OffsetRecord | GroupRecord, producer_id: int) -> None:
        """Only committed offsets wait for the end of their transaction, as in Kafka."""
        if isinstance(record, GroupRecord):
            self.replay(record)
            return
        self.offsets.replay_in_transaction(record, producer_id)
        if self._is_loaded and record.value is not None:
            self.find_or_create(record.key.group)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        for group_id in self.offsets.replay_transaction_end(producer_id, committed=committed):
            group = self.find(group_id)
            if group is not None:
                self.drop_if_unused(group)

    def load(self) -> None:
        """Make the live groups.  The timers of their members are not set."""
        self._is_loaded = True
        for group_id, value in self._durable.items():
            members = [_loaded_member(group_id, value, each) for each in value.members]
            self.find_or_create(group_id).restore(value, members)
        for group_id in self.offsets.group_ids():
            self.find_or_create(group_id)

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._live.get(group_id)

    def find_or_create(self, group_id: str) -> ClassicGroup:
        group = self._live.get(group_id)
        if group is None:
            group = ClassicGroup(
                group_id,
                Timer(TimerSubject(TimerKind.JOIN, group_id)),
                Timer(TimerSubject(TimerKind.SYNC, group_id)),
            )
            self._live[group_id] = group
        return group

    def drop_if_unused(self, group: ClassicGroup) -> None:
        """Drop an empty group of which nothing durable exists."""
        is_durable = group.group_id in self._durable or group.group_id in self.offsets
        if group.state is GroupState.EMPTY and not group.pending_joins and not is_durable:
            self._drop(group)

    def _drop(self, group: ClassicGroup) -> None:
        for timer in group.timers():
            self._timers.cancel(timer)
        group.state = GroupState.DEAD
        del self._live[group.group_id]

    def has_record(self, group_id: str) -> bool:
        """Whether the log has a record of the group itself, not only offsets."""
        return group_id in self._durable

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._live.values())

    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._live)

    def check_invariants(self) -> None:
        """Assert what holds between events, when the records of the last one are replayed."""
        self.offsets.pending.check_invariants()
        assert self._live.keys() >= self._durable.keys()
        assert all(group_id in self._live for group_id in self.offsets.group_ids())
        for group in self._live.values():
            group.check_invariants()
            durable = self._durable.get(group.group_id)
            if group.state is GroupState.STABLE:
                assert durable is not None
                assert durable.generation == group.generation_id
                assert durable.protocol == group.protocol_name
                assert {each.member_id: each.assignment for each in durable.members} == {
                    each.member_id: each.assignment for each in group.members.values()
                }
            elif group.state is GroupState.EMPTY and durable is not None:
                assert durable.generation == group.generation_id
                assert not durable.members


def _loaded_member(group_id: str, value: GroupMetadataValue, loaded: MemberMetadata) -> Member:
    member = Member(
        member_id=loaded.member_id,
        instance_id=loaded.group_instance_id,
        client_id=loaded.client_id,
        client_host=loaded.client_host,
        session_timer=session_timer(group_id, loaded.member_id),
    )
    member.session_timeout_ms = loaded.session_timeout
    no_timeout = loaded.rebalance_timeout == -1
    member.rebalance_timeout_ms = loaded.session_timeout if no_timeout else loaded.rebalance_timeout
    member.assignment = loaded.assignment
    protocol = JoinGroupRequestProtocol(name=value.protocol or "", metadata=loaded.subscription)
    member.set_protocols((protocol,))
    return member


def session_timer(group_id: str, member_id: str) -> Timer:
    return Timer(TimerSubject(TimerKind.SESSION, group_id, member_id))
