"""The consumer behind ``AsyncConsumer`` and ``Consumer``: a group member that reads records.

Owns: the order of the steps of a poll: changes of the assignment, automatic commits, records.
Must not know how callbacks of the application are called, as they may be coroutines or block: a
step returns the callback to run, and ``finish_callback`` goes on behind it.
"""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from typing import TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import ClusterView
from sparklog.client.consumer import Consumer
from sparklog.client.deadline import Deadline
from sparklog.client.fetched_records import ConsumedRecord, FetchedRecords
from sparklog.client.groups.consumer_protocol import NO_GENERATION
from sparklog.client.groups.coordinator_link import CoordinatorLink
from sparklog.client.groups.group_member import GroupMember
from sparklog.client.groups.member_events import (
    MEMBERSHIP_DOUBTED,
    CallbackDone,
    CallbackKind,
    MembershipLost,
    MetadataRefreshed,
    PollBegan,
    PollEnded,
    RunCallback,
    SubscriptionChanged,
)
from sparklog.client.groups.offset_commits import CommitCallback, CommitOutcome, OffsetCommits
from sparklog.client.groups.offset_requests import GroupIdentity, OffsetAndMetadata
from sparklog.client.groups.options import GroupConsumerOptions
from sparklog.client.groups.start_positions import StartPositions
from sparklog.client.groups.topic_watch import TopicWatch
from sparklog.errors import ClosedError, ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Sized)
#: Offsets as an application gives them.
GivenOffsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class GroupConsumer:
    """Steps of a consumer with or without a group; all methods belong to one event loop."""

    def __init__(self, cluster: ClusterClient, options: GroupConsumerOptions) -> None:
        self.options = options
        self.records = Consumer(cluster, options.record_options)
        #: Records that were polled for iteration, and not reached yet.
        self.unread: deque[ConsumedRecord] = deque()
        #: The names or the pattern of the subscription; None without a subscription.
        self.subscription: frozenset[str] | re.Pattern[str] | None = None
        self.closed = False
        #: Whether the application failed, so that its last records are not committed automatically.
        self.gives_up = False
        self._cluster = cluster
        self._matched: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._woken = False
        self._link: CoordinatorLink | None = None
        self._member: GroupMember | None = None
        self._commits: OffsetCommits | None = None
        self._commit_due = Deadline(options.auto_commit_interval_ms / 1000)
        self._watch = TopicWatch(cluster, options.metadata_max_age_ms / 1000, self._take_metadata)
        self._api_timeout_s = options.default_api_timeout_ms / 1000
        if options.group_id is not None:
            request_timeout_s = options.request_timeout_ms / 1000
            self._link = CoordinatorLink(cluster, options.group_id, request_timeout_s)
            self._commits = OffsetCommits(self._link, self._api_timeout_s, self._note_refusal)
            settings = options.member_settings
            self._member = GroupMember(cluster, self._link, settings, self._tell, self._watch_group)
        self.starts = StartPositions(self.records, self._link, options, self._tell)

    # the subscription

    def subscribe(self, wanted: Iterable[str] | re.Pattern[str]) -> None:
        """Join the group for these topics.  Raises ValueError, KafkaError, ClosedError."""
        self.check_open()
        member = self._need_group("subscribe")
        if self.subscription is None and self.assignment:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "partitions were assigned with assign; call unsubscribe before subscribe",
            )
        if isinstance(wanted, str):
            raise ValueError(f"subscribe takes a list of topics: subscribe([{wanted!r}])")
        member.error = None
        member.left.clear()
        if isinstance(wanted, re.Pattern):
            self.subscription = wanted
            self._watch.start(None)
            return
        topics = frozenset(wanted)
        if not topics or "" in topics:
            raise ValueError("subscribe needs the name of a topic; unsubscribe leaves the group")
        self.subscription = topics
        member.handle(SubscriptionChanged(topics=topics))
        self._watch.start(sorted(topics))

    async def assign(self, wanted: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions without the group's help.

        Partitions that are read already and get no offset keep their position and their pause.
        """
        self.check_open()
        if self.subscription is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "the consumer is subscribed; call unsubscribe before assign",
            )
        given = wanted if isinstance(wanted, Mapping) else {}
        names = set(wanted)
        resolved = await self.records.resolve(given)
        if self.assignment:
            await self._commit_before_loss()
        kept = self.assignment & (names - resolved.keys())
        await self._drop(self.assignment - kept)
        self.records.add(resolved)
        self.starts.add(names - resolved.keys() - kept)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the subscription; for a pattern, the matching topics."""
        if isinstance(self.subscription, frozenset):
            return self.subscription
        return self._matched if self.subscription is not None else frozenset()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.records.assignment | self.starts.waiting

    def _take_metadata(self, view: ClusterView) -> None:
        member, pattern = self._member, self.subscription
        if member is None or pattern is None or member.error is not None:
            return
        if isinstance(pattern, re.Pattern):
            names = (name for name, topic in view.topics.items() if not topic.is_internal)
            self._matched = frozenset(filter(pattern.fullmatch, names))
            member.handle(SubscriptionChanged(topics=self._matched))
        counts = {name: len(topic.partitions) for name, topic in view.topics.items()}
        member.handle(MetadataRefreshed(counts=counts))

    def _watch_group(self, topics: frozenset[str]) -> None:
        """Watch the topics of all members, because this member leads the group."""
        if isinstance(self.subscription, frozenset):
            self._watch.start(sorted(topics | self.subscription))

    # polls

    async def step(
        self, deadline: Deadline, take: Callable[[float], Awaitable[T]]
    ) -> T | RunCallback:
        """The next step of a poll: a callback to run first, or the result of ``take``.

        ``take`` is called with the seconds that are left.  Its result is returned once it is not
        empty, or the time is up.
        """
        self.check_open()
        if self.subscription is None and not self.assignment:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "nothing to poll: call subscribe or assign first"
            )
        member = self._member if self.subscription is not None else None
        if member is not None:
            member.handle(PollBegan())
        try:
            return await self._step(member, deadline, take)
        finally:
            if member is not None:
                member.handle(PollEnded())

    async def _step(
        self,
        member: GroupMember | None,
        deadline: Deadline,
        take: Callable[[float], Awaitable[T]],
    ) -> T | RunCallback:
        while True:
            self._news.clear()
            if member is not None and member.callbacks:
                return await self._begin_callback(member.callbacks[0])
            if member is not None and member.error is not None:
                raise member.error
            self._commit_if_due()
            self.starts.look_up()
            waits = not self.records.assignment and not self.unread
            if waits and not self._woken:
                await self._await_news(deadline)
            found = await take(0.0 if self._woken else deadline.left_s)
            woken, self._woken = self._woken, False
            if len(found) or deadline.expired or woken:
                return found

    async def take_records(self, timeout_s: float, count_max: int) -> list[ConsumedRecord]:
        """The next records, beginning with records that an iteration has left."""
        if not self.unread:
            return await self.records.poll(timeout_s, count_max)
        return [self.unread.popleft() for _ in range(min(count_max, len(self.unread)))]

    async def take_fetched(self, timeout_s: float) -> list[FetchedRecords]:
        """Fetched records, undecoded; see ``Consumer.poll_fetched``."""
        await self.rewind((TopicPartition(r.topic, r.partition), r.offset) for r in self.unread)
        return await self.records.poll_fetched(timeout_s)

    async def rewind(self, taken: Iterable[tuple[TopicPartition, int]]) -> None:
        """Go back to the first of these records in each partition, because they did not arrive."""
        first: dict[TopicPartition, int] = {}
        for tp, offset in taken:
            first.setdefault(tp, offset)
        for tp in first.keys() & self.records.assignment:
            await self.seek(tp, first[tp])

    async def _await_news(self, deadline: Deadline) -> None:
        with contextlib.suppress(TimeoutError):
            # asyncio.wait_for would lose a cancellation while there are news (Python 3.11).
            async with asyncio.timeout(max(deadline.left_s, 0.0)):
                await self._news.wait()

    def wake_up(self) -> None:
        """Make the waiting poll, or else the next one, return at once."""
        self._woken = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self.records.interrupt()

    # callbacks

    async def _begin_callback(
        self, callback: RunCallback, leave_by: Deadline | None = None
    ) -> RunCallback:
        """Prepare the call of the listener."""
        match callback.kind:
            case CallbackKind.REVOKED:
                await self._commit_before_loss(leave_by)
            case CallbackKind.LOST:
                await self._drop(callback.partitions)
            case CallbackKind.ASSIGNED:
                self.starts.add(callback.partitions, held=True)
        return callback

    async def finish_callback(
        self, callback: RunCallback, leave_by: Deadline | None = None
    ) -> None:
        """Carry out the change, after the listener was called.

        ``leave_by`` is the deadline of ``leave_step``, if that has returned the callback.
        """
        assert self._member is not None
        if callback.kind is CallbackKind.ASSIGNED:
            self.starts.release()
        else:
            if callback.kind is CallbackKind.REVOKED:
                await self._finish_commits(leave_by)
            await self._drop(callback.partitions)
        self._member.callbacks.popleft()
        self._member.handle(CallbackDone())

    async def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.starts.remove(gone)
        await self.records.remove(sorted(gone))
        self.unread = deque(r for r in self.unread if (r.topic, r.partition) not in gone)

    # positions

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        if tp in self.starts.waiting:
            self.starts.start_at(await self.records.resolve({tp: offset}))
        else:
            await self.records.seek(tp, offset)
        self.unread = deque(r for r in self.unread if (r.topic, r.partition) != tp)

    async def position(self, tp: TopicPartition) -> int:
        await self.starts.await_position(tp, self._api_timeout_s)
        if tp not in self.records.assignment:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} is not assigned")
        return self._position(tp)

    def _position(self, tp: TopicPartition) -> int:
        first = next((r.offset for r in self.unread if (r.topic, r.partition) == tp), None)
        return self.records.position(tp) if first is None else first

    def positions(self) -> dict[TopicPartition, int]:
        """The next offsets, without the partitions whose start is not known yet."""
        return {tp: self._position(tp) for tp in self.records.assignment}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.records.pause(self.starts.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.records.resume(self.starts.resume(partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self.records.paused | self.starts.paused

    # commits

    async def commit(self, given: GivenOffsets | None, timeout_s: float | None = None) -> None:
        commits, identity = self._commit_as()
        await commits.commit(identity, self._offsets(given), timeout_s)

    def commit_later(self, given: GivenOffsets | None, callback: CommitCallback | None) -> None:
        commits, identity = self._commit_as()
        commits.commit_later(identity, self._offsets(given), callback)

    def group_metadata(self) -> GroupIdentity:
        """The member and generation that commit.  Raises KafkaError."""
        return self._commit_as()[1]

    def take_commit_outcomes(self) -> list[CommitOutcome]:
        """The outcomes of background commits for the application, in order."""
        if self._commits is None:
            return []
        found, outcomes = [], self._commits.outcomes
        while outcomes:  # other threads may look, too
            found.append(outcomes.popleft())
        return found

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._need_group("committed")
        assert self._link is not None
        return await self._link.committed(
            partitions, self._api_timeout_s, require_stable=self.options.is_read_committed
        )

    def _commit_as(self) -> tuple[OffsetCommits, GroupIdentity]:
        self.check_open()
        member = self._need_group("commit")
        assert self._commits is not None
        if self.subscription is None:
            return self._commits, GroupIdentity(group_id=member.identity.group_id)
        if member.membership.generation == NO_GENERATION:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"this consumer is no member of the group {self.options.group_id!r} at the moment, "
                "and other members may own its partitions; poll joins the group again",
            )
        return self._commits, member.identity

    def _offsets(self, given: GivenOffsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if given is None:
            return {tp: OffsetAndMetadata(offset=at) for tp, at in self.positions().items()}
        return {
            tp: OffsetAndMetadata(offset=offset) if isinstance(offset, int) else offset
            for tp, offset in given.items()
        }

    def _commit_if_due(self) -> None:
        if not self._auto_commits or not self._commit_due.expired:
            return
        if self._commits is not None and self._commits.is_busy:
            return  # the coordinator is slow; later positions go with a later commit
        self._commit_due = Deadline(self.options.auto_commit_interval_ms / 1000)
        try:
            self.commit_later(None, None)
        except KafkaError as error:
            logger.info("no automatic commit: %s", error)

    async def _commit_before_loss(self, leave_by: Deadline | None = None) -> None:
        """Commit the consumed records before the partitions go; a failure is only logged."""
        if not self._auto_commits:
            return
        try:
            await self.commit(None, self._loss_limit_s(leave_by))
        except SparklogError as error:
            logger.warning("the automatic commit before a rebalance failed: %s", error)

    async def _finish_commits(self, leave_by: Deadline | None) -> None:
        """Wait for the commits in the background, which the group refuses once it rebalanced.

        While the member leaves, they get half of the time that is left: the other half is for the
        last automatic commit, the listener and LeaveGroup.
        """
        if self._commits is not None:
            await self._commits.finish(self._loss_limit_s(leave_by, share=0.5))

    def _loss_limit_s(self, leave_by: Deadline | None, *, share: float = 1.0) -> float:
        """How long commits may hold up the loss of partitions: a leaving member's, at most this
        share of the time that is left."""
        limit_s = min(self._api_timeout_s, self.options.session_timeout_ms / 1000)
        return limit_s if leave_by is None else min(limit_s, leave_by.left_s * share)

    @property
    def _auto_commits(self) -> bool:
        wanted = self.options.enable_auto_commit and not self.gives_up
        return wanted and self.options.group_id is not None

    def _note_refusal(self, identity: GroupIdentity, error: KafkaError) -> None:
        if self._member and identity.member_id and error.code in MEMBERSHIP_DOUBTED:
            generation = identity.generation
            self._member.handle(MembershipLost(generation=generation, code=error.code))

    # the end

    async def leave_step(self, deadline: Deadline) -> RunCallback | None:
        """A callback to run before this member leaves the group; None after it has left.

        The callbacks run even when the time is up.  LeaveGroup is sent after the last of them; its
        response is awaited as long as there is time.
        """
        member = self._member
        self._watch.stop()
        if self.subscription is None or member is None:
            if self.assignment and self._auto_commits:
                await self._commit_before_loss(deadline)
            await self._drop(self.assignment)
            return None
        await self._finish_commits(deadline)
        member.handle(SubscriptionChanged(topics=None))
        while not member.left.is_set():
            self._news.clear()
            if member.callbacks:
                return await self._begin_callback(member.callbacks[0], deadline)
            if deadline.expired:
                break
            await self._await_news(deadline)
        self.subscription = None
        await self._drop(self.assignment)
        return None

    async def close(self, deadline: Deadline) -> None:
        """Stop.  Call ``leave_step`` before."""
        self.closed = True
        await self._watch.close()
        if self._commits is not None:
            await self._commits.finish(deadline.left_s)
            await self._commits.close()
        await self.starts.close()
        if self._member is not None:
            await self._member.close()
        await self.records.close()
        if self._link is not None:
            await self._link.close()

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed; make a new one")

    def _need_group(self, what: str) -> GroupMember:
        if self._member is None:
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID,
                f"{what} needs a group: give the consumer a group_id",
            )
        return self._member
