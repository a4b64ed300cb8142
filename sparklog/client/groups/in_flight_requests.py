"""The requests of a group member to its coordinator that are in flight.

Owns: request ids, which response is awaited, and whether the coordinator is known.  Must not know
the states of a member, nor the content of a response.
"""

from collections.abc import Iterable, Mapping

from sparklog.client.groups.assignors import Assignment, Assignor
from sparklog.client.groups.consumer_protocol import Subscription
from sparklog.client.groups.member_events import (
    Action,
    ComputeAssignment,
    FindCoordinator,
    MemberRequest,
    SendRequest,
)
from sparklog.client.groups.member_requests import (
    MemberView,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from sparklog.types import TopicPartition


class InFlightRequests:
    """The requests of one member; each becomes an action in ``actions``."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.coordinator_known = False
        self._finding = False
        self._request_id = 0
        #: The id of the Join, Sync or Leave request, or computation, in flight; 0 without any.
        self.pending = 0
        #: The id of the Heartbeat request in flight; 0 without any.
        self.heartbeat = 0

    @property
    def is_busy(self) -> bool:
        """Whether the next step waits for a response, or for the coordinator's address."""
        return bool(self.pending) or self._finding

    # the coordinator

    def find_coordinator(self) -> None:
        if not self._finding:
            self._finding = True
            self.actions.append(FindCoordinator())

    def end_search(self, *, found: bool) -> None:
        """End the search for the coordinator; after a failure, keep the last known one."""
        self._finding = False
        self.coordinator_known = self.coordinator_known or found

    def lose_coordinator(self) -> None:
        self.coordinator_known = False
        self.heartbeat = 0

    def forget_requests(self) -> None:
        """Ignore the responses to the requests in flight."""
        self.pending = self.heartbeat = 0

    # requests

    def join(
        self,
        member: MemberView,
        topics: Iterable[str],
        owned: frozenset[TopicPartition],
        previous: tuple[frozenset[TopicPartition], int],
    ) -> None:
        self.heartbeat = 0  # the answer to one that is under way may be about any generation
        self.pending = self._send(join_request(member, topics, owned, previous))

    def compute(self, assignor: Assignor, members: Mapping[str, Subscription]) -> None:
        self.pending = self._next_id()
        action = ComputeAssignment(request_id=self.pending, assignor=assignor, members=members)
        self.actions.append(action)

    def sync(self, member: MemberView, protocol: str, assignment: Assignment) -> None:
        self.pending = self._send(sync_request(member, protocol, assignment))

    def send_heartbeat(self, member: MemberView) -> None:
        """Send a heartbeat, unless one is in flight."""
        if not self.heartbeat:
            self.heartbeat = self._send(heartbeat_request(member))

    def leave(self, member: MemberView, reason: str) -> None:
        self.pending = self._send(leave_request(member, reason))

    def _next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def _send(self, request: MemberRequest) -> int:
        request_id = self._next_id()
        self.actions.append(SendRequest(request_id=request_id, request=request))
        return request_id
