"""Members of consumer groups, as requests and no more, and offset commits from plain sockets.

Owns: the requests that members send.  Must not know whose coordinator answers, or what is measured.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.load import Caller, pump_all
from benchmarks.produce_frames import CLIENT, framed
from sparklog.client.connection import Connection
from sparklog.client.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from sparklog.errors import ErrorCode
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
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

#: Seconds between two heartbeats of a member: Java's and librdkafka's default.
HEARTBEAT_S: Final = 3.0
#: The same in a rebalance that is measured: what a member does not notice is no time of the
#: coordinator.
_EAGER_HEARTBEAT_S: Final = 0.05
_SESSION_TIMEOUT_MS: Final = 45_000
_REBALANCE_TIMEOUT_MS: Final = 60_000
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.2
_PROTOCOL: Final = "range"
#: The last version that gives topics by name instead of id.
_COMMIT_VERSION: Final = 9
#: Commits that a connection sends at once; twice as many are in flight.
_AT_ONCE: Final = 50
_RETRIED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Member:
    """One member of a group, with its own connection.  ``generation`` is -1 until it joined."""

    def __init__(self, connection: Connection, group: str, topic: str, partitions: int) -> None:
        self.generation = -1
        #: The members of the group, as the leader of the last generation knows them.
        self.known_members = 0
        self._connection = connection
        self._group = group
        self._member_id = ""
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        subscription = encode_subscription(Subscription(topics=(topic,)))
        self._protocols = (JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription),)

    async def join(self) -> None:
        """Join and sync until there is an assignment."""
        while not await self._sync(await self._join()):
            pass

    async def heartbeat(self) -> ErrorCode:
        beat = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self._member_id
        )
        return ErrorCode((await self._connection.request(beat)).error_code)

    async def _join(self) -> JoinGroupResponse:
        while True:
            joining = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=self._protocols,
            )
            joined: JoinGroupResponse = await self._connection.request(
                joining, timeout_s=_PATIENCE_S
            )
            self._member_id = joined.member_id or self._member_id
            if joined.error_code == ErrorCode.NONE:
                return joined
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED, joined

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Send the assignments, if this member leads; return whether the generation is complete."""
        self.known_members = len(joined.members)
        syncing = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member_id=member.member_id,
                    assignment=encode_assignment(self._partitions[number :: len(joined.members)]),
                )
                for number, member in enumerate(joined.members)
            ),
        )
        synced: SyncGroupResponse = await self._connection.request(syncing, timeout_s=_PATIENCE_S)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        assert synced.error_code == ErrorCode.NONE, synced
        self.generation = joined.generation_id
        return True


async def rebalance(bootstrap: Endpoint, group: str, topic: str, counts: tuple[int, int]) -> float:
    """Return the seconds from the last member's join until all members have an assignment.

    ``counts`` are the members, which join at the same time, and the partitions of the topic.
    """
    members_count, partitions = counts
    async with _members(bootstrap, [group] * members_count, topic, partitions) as members:
        settled = asyncio.Event()

        async def live(member: Member) -> None:
            await member.join()
            while not settled.is_set():
                if is_settled():
                    settled.set()
                    return
                await asyncio.sleep(_EAGER_HEARTBEAT_S)
                if await member.heartbeat() is not ErrorCode.NONE:
                    await member.join()

        def is_settled() -> bool:
            one_generation = len({member.generation for member in members}) == 1
            return one_generation and max(m.known_members for m in members) == members_count

        began = time.perf_counter()
        lives = [asyncio.create_task(live(member)) for member in members]
        await asyncio.wait_for(settled.wait(), _PATIENCE_S)
        taken = time.perf_counter() - began
        await asyncio.gather(*lives)
        return taken


@asynccontextmanager
async def heartbeating(
    bootstrap: Endpoint, groups: Sequence[str], members: int
) -> AsyncIterator[None]:
    """Let members of several groups live; each of them sends a heartbeat every ``HEARTBEAT_S``."""
    names = [groups[number % len(groups)] for number in range(members)]
    async with _members(bootstrap, names, "bench", 0) as living:

        async def live(member: Member, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            while True:
                if await member.heartbeat() is not ErrorCode.NONE:
                    await member.join()
                await asyncio.sleep(HEARTBEAT_S)

        await asyncio.gather(*[member.join() for member in living])
        lives = [
            asyncio.create_task(live(member, HEARTBEAT_S * number / members))
            for number, member in enumerate(living)
        ]
        try:
            yield
        finally:
            for each in lives:
                assert not each.done(), each.exception()
                each.cancel()
            await asyncio.gather(*lives, return_exceptions=True)


class CommitLoad:
    """Commits of one partition each, by consumers without members, over several connections."""

    def __init__(self, coordinator: Endpoint, topic: str, connections: int) -> None:
        self._coordinator = coordinator
        self._frames = [_commit_frame(f"commits-{n}", topic) for n in range(connections)]

    def run(self, commits: int) -> float:
        """Return the seconds that so many commits take together."""
        callers = [Caller(self._coordinator) for _ in self._frames]
        try:
            for caller, frame in zip(callers, self._frames, strict=True):
                answer = caller.call(frame)
                _, response = decode_response(OffsetCommitResponse, _COMMIT_VERSION, answer)
                codes = [p.error_code for topic in response.topics for p in topic.partitions]
                assert codes == [0], response
            turns = commits // len(callers) // _AT_ONCE
            loads = [[frame * _AT_ONCE] * turns for frame in self._frames]
            taken = pump_all(callers, loads, (len(answer) + 4) * _AT_ONCE)
            return taken * commits / (turns * _AT_ONCE * len(callers))
        finally:
            for caller in callers:
                caller.close()


async def find_coordinator(bootstrap: Endpoint, group: str) -> Endpoint:
    """Return the coordinator once it serves the group."""
    connection = await Connection.open(bootstrap, client_id=CLIENT)
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while True:
            asked = FindCoordinatorRequest(key=group, coordinator_keys=(group,))
            (found,) = (await connection.request(asked)).coordinators
            if found.error_code == ErrorCode.NONE:
                endpoint = Endpoint(found.host, found.port)
                if await _is_loaded(endpoint, group):
                    return endpoint
            assert time.monotonic() < deadline, found
            await asyncio.sleep(_LOOK_S)
    finally:
        connection.close()


async def _is_loaded(coordinator: Endpoint, group: str) -> bool:
    connection = await Connection.open(coordinator, client_id=CLIENT)
    try:
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        return (await connection.request(beat)).error_code not in _RETRIED
    finally:
        connection.close()


@asynccontextmanager
async def _members(
    bootstrap: Endpoint, groups: Sequence[str], topic: str, partitions: int
) -> AsyncIterator[list[Member]]:
    """Connected members that have not joined yet, one for each name of a group."""
    coordinator = await find_coordinator(bootstrap, groups[0])
    connections: list[Connection] = []
    try:
        for _ in groups:
            connections.append(await Connection.open(coordinator, client_id=CLIENT))
        yield [
            Member(connection, group, topic, partitions)
            for connection, group in zip(connections, groups, strict=True)
        ]
    finally:
        for connection in connections:
            connection.close()


def _commit_frame(group: str, topic: str) -> bytes:
    part: Any = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=group, topics=(OffsetCommitRequestTopic(name=topic, partitions=(part,)),)
    )
    return framed(encode_request(request, _COMMIT_VERSION, 1, CLIENT))
