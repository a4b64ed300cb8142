"""A group coordinator that is just large enough for members to be tested against.

Owns: one group of the classic protocol with dynamic members: joins, syncs, heartbeats, leaves,
session and rebalance timeouts.  Must not know the members' code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Answer = Callable[[Any], None]


@dataclass
class Seat:
    """A member, as the coordinator knows it."""

    request: JoinGroupRequest
    heard_at: float
    join: Answer | None = None
    sync: Answer | None = None
    assignment: bytes = b""


class TinyCoordinator:
    def __init__(self) -> None:
        self.seats: dict[str, Seat] = {}
        self.generation = 0
        self.state = "stable"
        self.leader = ""
        self.protocol = ""
        self.rebalances = 0
        #: What the next requests are refused with.
        self.refusals: list[ErrorCode] = []
        self._next_id = 0
        self._promised: set[str] = set()
        self._deadline = 0.0

    def ask(self, request: Any, answer: Answer, now: float) -> None:
        if self.refusals:
            code = self.refusals.pop(0)
            kind = type(request).__name__.replace("Request", "Response")
            answer(globals()[kind](error_code=code))
            return
        match request:
            case JoinGroupRequest():
                self._join(request, answer, now)
            case SyncGroupRequest():
                self._sync(request, answer, now)
            case HeartbeatRequest():
                answer(HeartbeatResponse(error_code=self._beat(request, now)))
            case LeaveGroupRequest():
                answer(LeaveGroupResponse())
                member_id = request.member_id or request.members[0].member_id
                self._remove(member_id, now)

    def pass_time(self, now: float) -> None:
        for member_id, seat in list(self.seats.items()):
            expired = now - seat.heard_at >= seat.request.session_timeout_ms / 1000
            if expired and seat.join is None:
                self._remove(member_id, now)
        if self.state == "preparing" and now >= self._deadline:
            for member_id, seat in list(self.seats.items()):
                if seat.join is None:
                    del self.seats[member_id]
            self._complete(now)

    def _join(self, request: JoinGroupRequest, answer: Answer, now: float) -> None:
        if not request.member_id:
            self._next_id += 1
            member_id = f"member-{self._next_id}"
            self._promised.add(member_id)
            code = ErrorCode.MEMBER_ID_REQUIRED
            answer(JoinGroupResponse(error_code=code, member_id=member_id))
            return
        seat = self.seats.get(request.member_id)
        if seat is None and request.member_id not in self._promised:
            answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._promised.discard(request.member_id)
        seat = seat or Seat(request=request, heard_at=now)
        self.seats[request.member_id] = seat
        seat.request, seat.join, seat.heard_at = request, answer, now
        self._prepare(now)
        self._complete_if_all(now)

    def _prepare(self, now: float) -> None:
        if self.state == "preparing":
            return
        if self.state == "completing":
            for seat in self.seats.values():
                if seat.sync:
                    seat.sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                    seat.sync = None
        self.state = "preparing"
        self.rebalances += 1
        timeouts = [seat.request.rebalance_timeout_ms for seat in self.seats.values()]
        self._deadline = now + max(timeouts, default=0) / 1000

    def _complete_if_all(self, now: float) -> None:
        if self.state == "preparing" and all(seat.join for seat in self.seats.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        self.generation += 1
        if not self.seats:
            self.state = "stable"
            return
        self.state = "completing"
        self.leader = self.leader if self.leader in self.seats else min(self.seats)
        names = [{p.name for p in seat.request.protocols} for seat in self.seats.values()]
        common = set.intersection(*names)
        offered = self.seats[self.leader].request.protocols
        self.protocol = next(p.name for p in offered if p.name in common)
        members = tuple(
            JoinGroupResponseMember(
                member_id=member_id,
                metadata={p.name: p.metadata for p in seat.request.protocols}[self.protocol],
            )
            for member_id, seat in self.seats.items()
        )
        for member_id, seat in self.seats.items():
            assert seat.join is not None
            answer, seat.join, seat.heard_at = seat.join, None, now
            answer(
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name=self.protocol,
                    leader=self.leader,
                    member_id=member_id,
                    members=members if member_id == self.leader else (),
                )
            )

    def _sync(self, request: SyncGroupRequest, answer: Answer, now: float) -> None:
        code = self.check(request.member_id, request.generation_id, now)
        if code == ErrorCode.NONE and self.state == "preparing":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code != ErrorCode.NONE:
            answer(SyncGroupResponse(error_code=code))
            return
        seat = self.seats[request.member_id]
        if self.state == "stable":
            answer(SyncGroupResponse(assignment=seat.assignment))
            return
        seat.sync = answer
        if request.member_id == self.leader:
            given = {each.member_id: each.assignment for each in request.assignments}
            assert given.keys() == self.seats.keys()
            self.state = "stable"
            for member_id, each in self.seats.items():
                each.assignment = given[member_id]
                if each.sync:
                    each.sync(SyncGroupResponse(assignment=each.assignment))
                    each.sync = None

    def _beat(self, request: HeartbeatRequest, now: float) -> ErrorCode:
        code = self.check(request.member_id, request.generation_id, now)
        if code == ErrorCode.NONE and self.state == "preparing":
            return ErrorCode.REBALANCE_IN_PROGRESS
        return code

    def check(self, member_id: str, generation: int, now: float) -> ErrorCode:
        if member_id not in self.seats:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.seats[member_id].heard_at = now
        return ErrorCode.NONE

    def _remove(self, member_id: str, now: float) -> None:
        if self.seats.pop(member_id, None) is not None:
            self._prepare(now)
            self._complete_if_all(now)
