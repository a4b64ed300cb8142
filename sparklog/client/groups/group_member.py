"""A group member on an event loop: it carries out the decisions of ``Membership``.

Owns: the member's requests under way, its timer, and the callbacks and the error that wait for the
application.  Must not know records, positions, nor how callbacks are carried out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.groups.consumer_protocol import NO_GENERATION
from sparklog.client.groups.coordinator_link import CoordinatorLink, as_kafka_error
from sparklog.client.groups.member_events import (
    Action,
    AssignmentComputed,
    ComputationFailed,
    ComputeAssignment,
    CoordinatorFound,
    CoordinatorNotFound,
    Event,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    Left,
    MemberSettings,
    RequestFailed,
    RunCallback,
    SendRequest,
    SyncAnswered,
    TimePassed,
)
from sparklog.client.groups.membership import Membership
from sparklog.client.groups.offset_requests import GroupIdentity
from sparklog.errors import ErrorCode, SparklogError
from sparklog.runtime_environment import clock_s
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

#: Time for the response to a JoinGroup in addition to the rebalance timeout, as in Java's client.
_JOIN_GRACE_S: Final = 5.0
#: Time to send a LeaveGroup that is under way when the member is closed.
_LEAVE_GRACE_S: Final = 1.0
#: A first search may fail because the topic of offsets is being created.
_SEARCHES_UNTIL_WARNING: Final = 5


class GroupMember:
    """One member of a group.

    ``on_news`` is called when a waiting poll must check again.  ``on_group_topics`` is called with
    the topics of all members when this member leads the group.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        link: CoordinatorLink,
        settings: MemberSettings,
        on_news: Callable[[], None],
        on_group_topics: Callable[[frozenset[str]], None],
    ) -> None:
        self.membership = Membership(settings)
        #: Changes of the assignment that ``poll`` has to carry out, in order.
        self.callbacks: deque[RunCallback] = deque()
        #: Why the group refuses this member; None as long as it does not.
        self.error: Exception | None = None
        self.left = asyncio.Event()
        self._cluster = cluster
        self._link = link
        self._on_news = on_news
        self._on_group_topics = on_group_topics
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: The last LeaveGroup, under way or answered.
        self._leaving: asyncio.Task[None] | None = None
        #: Searches for the coordinator that failed in a row.
        self._searches = 0
        self._closed = False

    def handle(self, event: Event) -> None:
        """Give the member an event, and carry out its actions."""
        if self._closed:
            return
        for action in self.membership.handle(event, clock_s()):
            self._perform(action)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self.membership.wake_at
        if wake_at != float("inf"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(wake_at, self.handle, TimePassed())

    @property
    def identity(self) -> GroupIdentity:
        """The member as it commits offsets."""
        membership = self.membership
        member_id = membership.member_id if membership.generation != NO_GENERATION else ""
        return GroupIdentity(
            group_id=membership.settings.group_id,
            member_id=member_id,
            generation=membership.generation,
            group_instance_id=membership.settings.group_instance_id if member_id else None,
        )

    async def close(self) -> None:
        """Stop without a new request; the caller lets the member leave before.

        A LeaveGroup that is under way gets a moment even if the caller has no time left: without
        it the group waits for this member until its session ends.
        """
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._leaving is not None:
            await asyncio.wait((self._leaving,), timeout=_LEAVE_GRACE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _perform(self, action: Action) -> None:
        match action:
            case FindCoordinator():
                self._link.forget()
                self._start(self._find())
            case SendRequest():
                task = self._start(self._send(action))
                if isinstance(action.request, LeaveGroupRequest):
                    self._leaving = task
            case ComputeAssignment():
                self._start(self._compute(action))
            case RunCallback():
                self.callbacks.append(action)
                self._on_news()
            case Left():
                self.left.set()
                self._on_news()
            case Fail():
                self.error = action.error
                self._on_news()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _find(self) -> None:
        try:
            await self._link.find(Deadline(self._link.request_timeout_s))
        except SparklogError as error:
            self._searches += 1
            level = logging.WARNING if self._searches == _SEARCHES_UNTIL_WARNING else logging.DEBUG
            logger.log(level, "no coordinator of %r: %s", self._link.group_id, error)
            self.handle(CoordinatorNotFound(error=as_kafka_error(error)))
        else:
            self._searches = 0
            self.handle(CoordinatorFound())

    async def _send(self, action: SendRequest) -> None:
        request, request_id = action.request, action.request_id
        settings = self.membership.settings
        timeout_s = self._link.request_timeout_s
        if isinstance(request, HeartbeatRequest):
            timeout_s = min(timeout_s, settings.session_timeout_s)
        elif not isinstance(request, LeaveGroupRequest):
            timeout_s = max(timeout_s, settings.max_poll_interval_s + _JOIN_GRACE_S)
        waits = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        try:
            response = await self._link.request(request, timeout_s=timeout_s, waits=waits)
        except SparklogError as error:
            logger.info("%s to %r failed: %s", type(request).__name__, settings.group_id, error)
            self.handle(RequestFailed(request_id=request_id))
            return
        match request:
            case JoinGroupRequest():
                self.handle(JoinAnswered(request_id=request_id, response=response))
            case SyncGroupRequest():
                self.handle(SyncAnswered(request_id=request_id, response=response))
            case HeartbeatRequest():
                code = ErrorCode.of(response.error_code)
                self.handle(HeartbeatAnswered(request_id=request_id, code=code))
            case _:
                self.handle(LeaveAnswered(request_id=request_id))

    async def _compute(self, action: ComputeAssignment) -> None:
        """Compute the assignment from metadata that is newer than the members' subscriptions."""
        topics = sorted({topic for each in action.members.values() for topic in each.topics})
        self._on_group_topics(frozenset(topics))
        try:
            view = await self._cluster.refresh(topics, Deadline(self._link.request_timeout_s))
        except SparklogError as error:
            failed = ComputationFailed(request_id=action.request_id, error=as_kafka_error(error))
            self.handle(failed)
            return
        found = {topic: view.topics.get(topic) for topic in topics}
        counts = {topic: len(each.partitions) if each else 0 for topic, each in found.items()}
        try:
            assignment = action.assignor.assign(counts, action.members)
        except Exception as error:
            self.handle(ComputationFailed(request_id=action.request_id, error=error))
            return
        self.handle(
            AssignmentComputed(request_id=action.request_id, assignment=assignment, counts=counts)
        )
