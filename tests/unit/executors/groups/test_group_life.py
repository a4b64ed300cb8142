"""Random lives of a group: clients that follow the protocol badly, time, and new coordinators.

What holds in every life:

- an assignment has at most one owner in a generation;
- a generation that has assignments never goes back, also across coordinators;
- committed offsets are there after every step and every load;
- every request that waits is answered in the end, by time alone.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupResponse
from sparklog.wire.protocol.messages.leave_group import MemberIdentity
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.executors.groups.group_rig import (
    GROUP,
    RANGE,
    STICKY,
    GroupRig,
    commit,
    fetched,
    heartbeat,
    join,
    leave,
    sync,
)

CLIENTS = 5
LONGEST_SESSION_MS = 30_000
LONGEST_REBALANCE_MS = 20_000
#: A new member may wait for so long.
LONGEST_WAIT_MS = 300_000
PROTOCOLS = ((RANGE,), (RANGE, STICKY), (STICKY, RANGE))


@dataclass
class Client:
    """A consumer as far as it knows; the first two are static members."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    has_assignment: bool = False
    waits_for: int | None = None

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)

    def forget(self) -> None:
        self.member_id, self.generation = "", -1
        self.leads, self.has_assignment = (), False


clients = st.integers(0, CLIENTS - 1)


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = GroupRig()
        self.clients = [Client(f"i{each}" if each < 2 else None) for each in range(CLIENTS)]
        self.offsets: dict[tuple[str, int], int] = {}
        self.owners: dict[bytes, str] = {}
        self.last_generation = 0
        self.withdrawn: set[int] = set()

    # -- what clients do

    @rule(
        client=clients,
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([0, 3, 5, 9]),
        session_ms=st.sampled_from([6_000, LONGEST_SESSION_MS]),
        rebalance_ms=st.sampled_from([1_000, LONGEST_REBALANCE_MS]),
    )
    def joins(
        self, client: int, protocols: tuple, version: int, session_ms: int, rebalance_ms: int
    ) -> None:
        it = self.clients[client]
        body = join(
            it.member_id,
            instance=it.instance if version >= 5 else None,
            protocols=protocols,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        self.send(it, body, version)

    @rule(client=clients, is_lazy=st.booleans())
    def syncs(self, client: int, is_lazy: bool) -> None:
        it = self.clients[client]
        assigned = it.leads[1:] if is_lazy else it.leads
        assignments = {each: f"{it.generation} {each}".encode() for each in assigned}
        self.send(it, sync(it.member_id, it.generation, assignments, instance=it.instance), 5)

    @rule(client=clients)
    def beats(self, client: int) -> None:
        it = self.clients[client]
        self.rig.send(heartbeat(it.member_id, it.generation, instance=it.instance), 4)
        response = self.rig.responses[self.rig.last_request_id]
        assert isinstance(response, HeartbeatResponse)
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            it.forget()
        elif response.error_code != ErrorCode.NONE:
            it.generation, it.has_assignment = -1, False

    @rule(client=clients)
    def leaves(self, client: int) -> None:
        it = self.clients[client]
        self.rig.send(leave(it.identity), 5)
        self.read_responses()
        it.forget()

    @rule(client=clients, partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commits(self, client: int, partition: int, offset: int) -> None:
        it = self.clients[client]
        body = commit({("orders", partition): offset}, it.member_id, it.generation)
        decision = self.rig.send(body, 9)
        (completion,) = decision.completions
        code = completion.response.topics[0].partitions[0].error_code
        assert bool(decision.records) == (code == ErrorCode.NONE)
        if code == ErrorCode.NONE:
            self.offsets[("orders", partition)] = offset

    @rule(client=clients)
    def goes_away(self, client: int) -> None:
        it = self.clients[client]
        if it.waits_for is not None:
            self.rig.machine.withdraw(it.waits_for)
            self.withdrawn.add(it.waits_for)
            it.waits_for = None

    @rule()
    @precondition(lambda self: self.rig.state == "Empty")
    def is_deleted(self) -> None:
        self.rig.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
        self.offsets = {}
        self.last_generation = 0

    # -- what good clients do

    @rule(count=st.integers(1, CLIENTS), rounds=st.integers(1, 6))
    def some_follow_the_protocol(self, count: int, rounds: int) -> None:
        for _ in range(rounds):
            for index in range(count):
                self.takes_its_next_step(index)
            self.rig.advance(1_000)
            self.read_responses()

    def takes_its_next_step(self, index: int) -> None:
        it = self.clients[index]
        if it.waits_for is not None:
            return
        if it.generation < 0:
            self.joins(index, (RANGE,), 9, 6_000, LONGEST_REBALANCE_MS)
        elif not it.has_assignment:
            self.syncs(index, is_lazy=False)
        else:
            self.beats(index)

    # -- what happens to them

    @rule(duration_ms=st.sampled_from([0, 1, 500, 3_000, 6_000, 10_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.rig.advance(duration_ms)
        self.read_responses()

    @rule()
    def coordinator_moves(self) -> None:
        waiting = [each.waits_for for each in self.clients if each.waits_for is not None]
        refused = self.rig.machine.unload(KafkaError(ErrorCode.NOT_COORDINATOR))
        assert {each.request_id for each in refused} == set(waiting)
        for client in self.clients:
            client.waits_for = None
        self.rig.load()

    # -- how it is judged

    def send(self, client: Client, body: object, version: int) -> None:
        if client.waits_for is not None:
            self.rig.machine.withdraw(client.waits_for)
            self.withdrawn.add(client.waits_for)
        self.rig.send(body, version)
        client.waits_for = self.rig.last_request_id
        self.read_responses()

    def read_responses(self) -> None:
        for client in self.clients:
            response = self.rig.responses.get(client.waits_for or 0)
            if response is not None:
                client.waits_for = None
                self.read_response(client, response)

    def read_response(self, client: Client, response: object) -> None:
        if isinstance(response, JoinGroupResponse):
            self.read_join(client, response)
        else:
            assert isinstance(response, SyncGroupResponse)
            self.read_sync(client, response)

    def read_join(self, client: Client, response: JoinGroupResponse) -> None:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()
        elif code == ErrorCode.NONE:
            client.member_id = response.member_id
            client.generation = response.generation_id
            client.has_assignment = response.skip_assignment
            assert response.protocol_name in ("range", "sticky")
            is_leader = response.leader == response.member_id
            assert bool(response.members) == is_leader
            client.leads = tuple(each.member_id for each in response.members)
        else:
            assert code in (
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                ErrorCode.REBALANCE_IN_PROGRESS,
            )

    def read_sync(self, client: Client, response: SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            client.generation = -1
            if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.forget()
            return
        client.has_assignment = True
        assert client.generation >= self.last_generation
        self.last_generation = client.generation
        if response.assignment:
            generation = int(response.assignment.split()[0])
            assert generation == client.generation
            owner = client.instance or client.member_id
            assert self.owners.setdefault(response.assignment, owner) == owner

    @invariant()
    def offsets_are_there(self) -> None:
        assert fetched(self.rig) == self.offsets

    @invariant()
    def nobody_who_left_is_answered(self) -> None:
        assert not self.withdrawn & self.rig.responses.keys()

    def teardown(self) -> None:
        for _ in range(3):
            for step_ms in (LONGEST_SESSION_MS, LONGEST_REBALANCE_MS, LONGEST_WAIT_MS):
                self.rig.advance(step_ms)
                self.read_responses()
        assert [each.waits_for for each in self.clients] == [None] * CLIENTS
        assert self.rig.state in ("Empty", "Dead")
        self.rig.load()
        assert fetched(self.rig) == self.offsets


GroupLife.TestCase.settings = settings(max_examples=40, stateful_step_count=50)
TestGroupLife = GroupLife.TestCase
