"""``AsyncConsumer``: a consumer of a group, for code with an event loop.

Owns: the names that applications call, and the calls of their listeners.  Must not know how a group
works.  ``blocking_consumer`` has the same names for blocking code.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sized
from typing import Any, Self, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.fetched_records import ConsumedRecord, SkippedRecords
from sparklog.client.groups.group_consumer import GivenOffsets, GroupConsumer
from sparklog.client.groups.member_events import CallbackKind, RunCallback
from sparklog.client.groups.offset_commits import CommitCallback
from sparklog.client.groups.offset_requests import GroupIdentity, OffsetAndMetadata
from sparklog.client.groups.options import GroupConsumerOptions
from sparklog.client.groups.rebalance_listener import RebalanceListener
from sparklog.errors import KafkaError
from sparklog.types import Endpoint, OffsetSpec, OffsetTimestamp, TopicPartition

Assigned = Iterable[TopicPartition] | Mapping[TopicPartition, int]
T = TypeVar("T", bound=Sized)

CLOSE_TIMEOUT_S = 30.0


class AsyncConsumer:
    """A consumer of records, alone (``assign``) or as a member of a group (``subscribe``).

    Iteration returns records without end.  ``poll`` must be called at least every
    ``max_poll_interval_ms``; heartbeats go on in the background meanwhile.
    """

    def __init__(
        self,
        bootstrap_servers: "str | Iterable[Endpoint] | ClusterClient",
        *,
        client_id: str = "sparklog",
        **options: Any,
    ) -> None:
        """Create a consumer.

        Args:
            bootstrap_servers: ``HOST:PORT,HOST:PORT``, or a client, which the caller closes.
            options: the options of ``GroupConsumerOptions`` by name.

        Raises:
            TypeError: an option has an unknown name.
            ValueError: an option has a wrong value.
        """
        self.options = GroupConsumerOptions.of(options)
        self._own: ClusterClient | None = None
        if isinstance(bootstrap_servers, ClusterClient):
            self._cluster = bootstrap_servers
        else:
            self._own = self._cluster = ClusterClient(bootstrap_servers, client_id=client_id)
        #: The steps behind the methods, which the blocking twin takes itself.
        self.core = GroupConsumer(self._cluster, self.options)
        self._listener = RebalanceListener()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: "type[BaseException] | None", *_: object) -> None:
        # What failed while it was processed is not committed.
        self.core.gives_up = kind is not None
        await self.close()

    # what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: "str | re.Pattern[str] | None" = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, or for all topics whose whole name matches the pattern.

        The new subscription replaces the old one.

        Raises:
            KafkaError: there is no ``group_id``, or ``assign`` has assigned partitions.
            ValueError: the topics or the pattern are wrong.
        """
        self.core.subscribe(_wanted(topics, pattern))
        self._listener = listener or RebalanceListener()

    async def unsubscribe(self) -> None:
        """Leave the group, or give up the assigned partitions."""
        self.core.check_open()
        await self._leave(Deadline(CLOSE_TIMEOUT_S))

    async def assign(self, partitions: Assigned) -> None:
        """Read these partitions, from committed offsets if there is a group, or from offsets.

        In a mapping, each partition has an offset or an ``OffsetSpec``.
        """
        await self.core.assign(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return self.core.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self.core.topics

    # records

    async def poll(self, timeout_s: float = 1.0, max_records: int = 500) -> list[ConsumedRecord]:
        """The next records; an empty list if none arrive within ``timeout_s`` seconds.

        The call also carries out changes of the assignment, and calls the listener.

        Raises:
            KafkaError: the group refuses this member.
            NoOffsetForPartitionError: a partition has no committed offset, and no reset is set.
            CorruptBatchError: records cannot be read.
        """

        async def take(left_s: float) -> list[ConsumedRecord]:
            return await self.core.take_records(left_s, max_records)

        return await self._poll(timeout_s, take)

    async def poll_arrow(self, timeout_s: float = 1.0, *, headers: bool = False) -> Any:
        """The next records as a ``pyarrow.RecordBatch``, which has no rows if none arrive in time.

        The columns are the columns of Spark's Kafka source: key, value, topic, partition, offset,
        timestamp, timestampType, and headers if wanted.  Raises the errors of ``poll``.
        """
        from sparklog.client.arrow_records import arrow_batch

        found = await self._poll(timeout_s, self.core.take_fetched)
        try:
            skipped = self._skipped_if_wanted
            return await asyncio.to_thread(arrow_batch, found, skipped, headers=headers)
        except BaseException:
            await self.core.rewind((each.topic_partition, each.taken_until) for each in found)
            raise

    async def _poll(self, timeout_s: float, take: Callable[[float], Awaitable[T]]) -> T:
        deadline = Deadline(timeout_s)
        while True:
            self._tell_outcomes()
            found = await self.core.step(deadline, take)
            if not isinstance(found, RunCallback):
                return found
            await self._call_back(found)

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Return records without end; a commit covers the records that the loop has reached."""
        while not self.core.closed:
            self.core.unread.extend(await self.poll())
            while self.core.unread and not self.core.closed:
                yield self.core.unread.popleft()

    def wakeup(self) -> None:
        """Make the waiting ``poll``, or else the next one, return at once."""
        self.core.wake_up()

    @property
    def skipped(self) -> SkippedRecords:
        """The records that were skipped because they cannot be read."""
        return self.core.records.skipped

    @property
    def unreadable(self) -> dict[TopicPartition, KafkaError]:
        """The assigned partitions that return no records now, and why; they are tried again."""
        return self.core.records.unreadable

    @property
    def _skipped_if_wanted(self) -> SkippedRecords | None:
        return self.skipped if self.options.skip_undecodable else None

    # positions

    async def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of an assigned partition."""
        return await self.core.position(tp)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each assigned partition with a known position."""
        return self.core.positions()

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at an offset, or at an ``OffsetSpec``."""
        await self.core.seek(tp, offset)

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the first records of these partitions; by default of all assigned ones."""
        for tp in list(partitions) or self.assignment:
            await self.core.seek(tp, OffsetSpec.EARLIEST)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue behind the last records of these partitions; by default of all assigned ones."""
        for tp in list(partitions) or self.assignment:
            await self.core.seek(tp, OffsetSpec.LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``; they stay assigned."""
        self.core.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self.core.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self.core.paused

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetTimestamp | None]:
        """The first record at or after a time in milliseconds; None without such a record."""
        found = await self._list_offsets(times)
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets of the first records."""
        found = await self._list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        return {tp: each.offset for tp, each in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last readable records."""
        found = await self._list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {tp: each.offset for tp, each in found.items()}

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetTimestamp]:
        self.core.check_open()
        return await self.core.records.data_client.list_offsets(
            wanted,
            isolation=self.options.isolation,
            timeout_s=self.options.default_api_timeout_ms / 1000,
        )

    async def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.  Raises KafkaError for an unknown topic."""
        deadline = Deadline(self.options.default_api_timeout_ms / 1000)
        found = await self._cluster.topic(topic, deadline)
        return [TopicPartition(topic, number) for number in found.partitions]

    # commits

    async def commit(
        self, offsets: GivenOffsets | None = None, timeout_s: float | None = None
    ) -> None:
        """Commit the positions behind all records that were returned, or these offsets.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION when other members may own the
                partitions; REBALANCE_IN_PROGRESS when ``poll`` must continue a rebalance first.
        """
        await self.core.commit(offsets, timeout_s)
        self._tell_outcomes()

    def commit_async(
        self, offsets: GivenOffsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit in the background.  A later ``poll``, commit or close calls the callback."""
        self.core.commit_later(offsets, callback)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None for a partition without one."""
        return await self.core.committed(partitions)

    def group_metadata(self) -> GroupIdentity:
        """The group, and this member and its generation, for ``send_offsets_to_transaction``.

        Raises KafkaError without a ``group_id``, and UNKNOWN_MEMBER_ID while a subscribed consumer
        is no member of the group: ``poll`` joins it.
        """
        return self.core.group_metadata()

    def _tell_outcomes(self) -> None:
        for outcome in self.core.take_commit_outcomes():
            outcome.callback(outcome.offsets, outcome.error)

    # the end

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Commit (if automatic), leave the group and stop.  A static member does not leave."""
        if self.core.closed:
            return
        deadline = Deadline(timeout_s)
        try:
            await self._leave(deadline)
        finally:
            await self.core.close(deadline)
            if self._own is not None:
                await self._own.close()
            self._tell_outcomes()

    async def _leave(self, deadline: Deadline) -> None:
        while (callback := await self.core.leave_step(deadline)) is not None:
            await self._call_back(callback, deadline)

    async def _call_back(self, callback: RunCallback, leave_by: Deadline | None = None) -> None:
        try:
            answer = call_listener(self._listener, callback)
            if inspect.isawaitable(answer):
                await answer
        finally:
            await self.core.finish_callback(callback, leave_by)


def call_listener(listener: RebalanceListener, callback: RunCallback) -> Awaitable[Any] | None:
    """Call the listener, unless no partition was lost or revoked."""
    match callback.kind:
        case CallbackKind.ASSIGNED:
            return listener.on_partitions_assigned(callback.partitions)
        case CallbackKind.REVOKED:
            return listener.on_partitions_revoked(callback.partitions)
        case _:
            return listener.on_partitions_lost(callback.partitions)


def _wanted(
    topics: Iterable[str], pattern: "str | re.Pattern[str] | None"
) -> "Iterable[str] | re.Pattern[str]":
    if pattern is None:
        return topics
    if topics:
        raise ValueError("subscribe takes topics or a pattern, not both")
    return re.compile(pattern)
