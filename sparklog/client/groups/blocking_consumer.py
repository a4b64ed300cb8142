"""``Consumer``: a consumer of a group, for code without an event loop.

Owns: blocking calls into the event loop thread.  The application's listeners and callbacks run in
the calling thread.  Must not know how a group works; ``async_consumer`` describes the methods.
"""

import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.deadline import Deadline
from sparklog.client.event_loop_thread import GRACE_S
from sparklog.client.fetched_records import ConsumedRecord, FetchedRecords, SkippedRecords
from sparklog.client.groups.async_consumer import (
    CLOSE_TIMEOUT_S,
    Assigned,
    AsyncConsumer,
    call_listener,
)
from sparklog.client.groups.group_consumer import GivenOffsets
from sparklog.client.groups.member_events import RunCallback
from sparklog.client.groups.offset_commits import CommitCallback
from sparklog.client.groups.offset_requests import GroupIdentity, OffsetAndMetadata
from sparklog.client.groups.rebalance_listener import RebalanceListener
from sparklog.errors import KafkaError, SparklogError
from sparklog.types import Endpoint, OffsetTimestamp, TopicPartition

T = TypeVar("T")


class Consumer:
    """``AsyncConsumer`` for blocking code.  Iteration returns records without end.

    A consumer belongs to one thread, except for ``wakeup``.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[Endpoint],
        *,
        client_id: str = "sparklog",
        **options: Any,
    ) -> None:
        """See ``AsyncConsumer``."""
        self._client = BlockingDataClient(bootstrap_servers, client_id=client_id)
        self._twin = self._client.run(self._make(options), GRACE_S)
        self._core = self._twin.core
        self._listener = RebalanceListener()
        self._api_timeout_s = self._twin.options.default_api_timeout_ms / 1000

    async def _make(self, options: dict[str, Any]) -> AsyncConsumer:
        return AsyncConsumer(self._client.cluster, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._core.gives_up = kind is not None
        self.close()

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self._client.run(work, self._api_timeout_s if timeout_s is None else timeout_s)

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Call a method that does not wait, on the event loop of the consumer."""

        async def call() -> Any:
            return function(*arguments)

        return self._run(call())

    # what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See ``AsyncConsumer.subscribe``."""

        async def subscribe() -> None:
            self._twin.subscribe(topics, pattern=pattern)

        self._run(subscribe())
        self._listener = listener or RebalanceListener()

    def unsubscribe(self) -> None:
        """See ``AsyncConsumer.unsubscribe``."""
        self._core.check_open()
        self._leave(Deadline(CLOSE_TIMEOUT_S))

    def assign(self, partitions: Assigned) -> None:
        """See ``AsyncConsumer.assign``."""
        self._run(self._twin.assign(partitions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return self._twin.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._twin.subscription

    # records

    def poll(self, timeout_s: float = 1.0, max_records: int = 500) -> list[ConsumedRecord]:
        """See ``AsyncConsumer.poll``."""

        async def take(left_s: float) -> list[ConsumedRecord]:
            found = await self._core.take_records(left_s, max_records)
            taken.extend((TopicPartition(r.topic, r.partition), r.offset) for r in found)
            return found

        taken: list[tuple[TopicPartition, int]] = []
        found: list[ConsumedRecord] = self._poll(timeout_s, take, taken)
        return found

    def poll_arrow(self, timeout_s: float = 1.0, *, headers: bool = False) -> Any:
        """See ``AsyncConsumer.poll_arrow``; records are decoded in the calling thread."""
        from sparklog.client.arrow_records import arrow_batch

        async def take(left_s: float) -> list[FetchedRecords]:
            found = await self._core.take_fetched(left_s)
            taken.extend((each.topic_partition, each.taken_until) for each in found)
            return found

        taken: list[tuple[TopicPartition, int]] = []
        found = self._poll(timeout_s, take, taken)
        try:
            skipped = self.skipped if self._twin.options.skip_undecodable else None
            return arrow_batch(found, skipped, headers=headers)
        except BaseException:
            self._run(self._core.rewind(taken))
            raise

    def _poll(self, timeout_s: float, take: Any, taken: list[tuple[TopicPartition, int]]) -> Any:
        deadline = Deadline(timeout_s)
        while True:
            self._tell_outcomes()
            limit = deadline.left_s + self._api_timeout_s
            try:
                found = self._run(self._core.step(deadline, take), limit)
            except SparklogError:
                raise
            except BaseException:  # such as KeyboardInterrupt: what was taken did not arrive
                self._run(self._core.rewind(taken))
                raise
            if not isinstance(found, RunCallback):
                return found
            self._call_back(found)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Return records without end; a commit covers the records that the loop has reached."""
        while not self._core.closed:
            self._core.unread.extend(self.poll())
            while self._core.unread and not self._core.closed:
                yield self._core.unread.popleft()

    def wakeup(self) -> None:
        """Make the waiting ``poll``, or else the next one, return at once, from any thread."""
        self._client.call(self._core.wake_up)

    @property
    def skipped(self) -> SkippedRecords:
        """The records that were skipped because they cannot be read."""
        return self._twin.skipped

    @property
    def unreadable(self) -> dict[TopicPartition, KafkaError]:
        """The assigned partitions that return no records now, and why; they are tried again."""
        return self._twin.unreadable

    # positions

    def position(self, tp: TopicPartition) -> int:
        """See ``AsyncConsumer.position``."""
        return self._run(self._twin.position(tp))

    def positions(self) -> dict[TopicPartition, int]:
        """See ``AsyncConsumer.positions``."""
        found: dict[TopicPartition, int] = self._call(self._twin.positions)
        return found

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """See ``AsyncConsumer.seek``."""
        self._run(self._twin.seek(tp, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """See ``AsyncConsumer.seek_to_beginning``."""
        self._run(self._twin.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """See ``AsyncConsumer.seek_to_end``."""
        self._run(self._twin.seek_to_end(partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """See ``AsyncConsumer.pause``."""
        self._call(self._twin.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """See ``AsyncConsumer.resume``."""
        self._call(self._twin.resume, *partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._twin.paused

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetTimestamp | None]:
        """See ``AsyncConsumer.offsets_for_times``."""
        return self._run(self._twin.offsets_for_times(times))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``AsyncConsumer.beginning_offsets``."""
        return self._run(self._twin.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``AsyncConsumer.end_offsets``."""
        return self._run(self._twin.end_offsets(partitions))

    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """See ``AsyncConsumer.partitions_for_topic``."""
        return self._run(self._twin.partitions_for_topic(topic))

    # commits

    def commit(self, offsets: GivenOffsets | None = None, timeout_s: float | None = None) -> None:
        """See ``AsyncConsumer.commit``."""
        self._run(self._core.commit(offsets, timeout_s), timeout_s)
        self._tell_outcomes()

    def commit_async(
        self, offsets: GivenOffsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """See ``AsyncConsumer.commit_async``."""
        self._call(self._core.commit_later, offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See ``AsyncConsumer.committed``."""
        return self._run(self._twin.committed(partitions))

    def group_metadata(self) -> GroupIdentity:
        """See ``AsyncConsumer.group_metadata``."""
        found: GroupIdentity = self._call(self._twin.group_metadata)
        return found

    def _tell_outcomes(self) -> None:
        for outcome in self._core.take_commit_outcomes():
            outcome.callback(outcome.offsets, outcome.error)

    # the end

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """See ``AsyncConsumer.close``.  Does nothing in a forked process."""
        if self._core.closed or not self._client.usable:
            return
        deadline = Deadline(timeout_s)
        try:
            self._leave(deadline)
        finally:
            self._run(self._core.close(deadline), timeout_s)
            self._tell_outcomes()
            self._client.close()

    def _leave(self, deadline: Deadline) -> None:
        while True:
            callback = self._run(self._core.leave_step(deadline), deadline.left_s + GRACE_S)
            if callback is None:
                return
            self._call_back(callback, deadline)

    def _call_back(self, callback: RunCallback, leave_by: Deadline | None = None) -> None:
        try:
            call_listener(self._listener, callback)
        finally:
            limit = self._api_timeout_s + GRACE_S
            self._run(self._core.finish_callback(callback, leave_by), limit)
