"""Fetch contexts: the partitions of a request without session, or of its session (KIP-227).

Owns: which partitions are read, which results are answered, and how the session is updated.  Must
not know how a partition is read or how a response waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sparklog.executors.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    PARTITION_UNITS,
    SLICE_PARTITIONS,
    CachedPartition,
    FetchKey,
    FetchSession,
    FetchSessionCache,
    View,
    requested_partitions,
)
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.slices import Slices, in_slices
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.fetch import FetchRequest, PartitionData


@dataclass(slots=True)
class ReadResult:
    """The result of reading one partition.

    ``drained`` means that this reader has read all records, and no error occurred.  ``urgent``
    means that the response must not wait for more.  ``lacks_high_watermark`` means that a follower
    does not know the high watermark yet; the response with it may wait a little for records.
    ``awaits_remote`` means that the records are on their way from the bucket.
    """

    part: CachedPartition
    topic: str
    data: PartitionData
    size: int = 0
    drained: bool = False
    urgent: bool = False
    lacks_high_watermark: bool = False
    awaits_remote: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.data.partition_index)


class FetchContext(Protocol):
    """The partitions of one fetch, and their state in its session."""

    @property
    def size(self) -> int:
        """The number of partitions in ``parts``."""

    @property
    def can_wait(self) -> bool:
        """False when the fetch names no partition."""

    def parts(self) -> Sequence[CachedPartition]:
        """The partitions to read, in this order."""

    def begin_wait(self, results: Sequence[ReadResult]) -> Sequence[FetchKey]:
        """Begin a wait of the fetch; return the keys that wake it."""

    def end_wait(self) -> None:
        """End the wait of the fetch."""

    @property
    def superseded(self) -> bool:
        """Whether the session went on with another request while this fetch waited."""

    def answer(
        self, results: Sequence[ReadResult], now_ms: int
    ) -> tuple[int, Sequence[ReadResult]]:
        """The session's id and the results that go into the response, which is sent now."""

    def begin_slices(self, now_ms: int) -> Slices[int]:
        """Start a read in slices, whose response is always sent.  Returns the session's id.

        Do not call ``answer`` afterwards.
        """

    def is_answered(self, result: ReadResult) -> bool:
        """After ``begin_slices``: whether a result goes into the response.

        Call this right after the read: nothing may change between the read and the session's
        update.
        """

    def has_new_due(self, results: Sequence[ReadResult]) -> bool:
        """After ``begin_slices``: whether a partition has become due since these reads began."""


def open_fetch_context(
    replica_manager: ReplicaManager, request: FetchRequest, replica_id: int, by_id: bool
) -> FetchContext:
    """The context of a request.  Raises KafkaError when the request does not fit its session."""
    session = replica_manager.delayed_operations.sessions.resume(
        request, by_id=by_id, now_ms=replica_manager.monotonic_ms()
    )
    if session is not None:
        return _resumed(replica_manager, session, request, replica_id)
    parts = list(requested_partitions(request.topics))
    if len(parts) > 1:
        parts = list({_named(part): part for part in parts}.values())
    return _whole(replica_manager, request, replica_id, by_id, parts)


def open_fetch_context_in_slices(
    replica_manager: ReplicaManager, request: FetchRequest, replica_id: int, by_id: bool
) -> Slices[FetchContext]:
    """``open_fetch_context`` for a request that names many partitions."""
    now_ms = replica_manager.monotonic_ms()
    resumed = replica_manager.delayed_operations.sessions.resume_in_slices(
        request, by_id=by_id, now_ms=now_ms
    )
    session = yield from resumed
    if session is not None:
        return _resumed(replica_manager, session, request, replica_id)
    once: dict[tuple[str, UUID | None, int], CachedPartition] = {}

    def add(part: CachedPartition) -> None:
        once[_named(part)] = part

    yield from in_slices(add, requested_partitions(request.topics), PARTITION_UNITS)
    return _whole(replica_manager, request, replica_id, by_id, list(once.values()))


def _named(part: CachedPartition) -> tuple[str, UUID | None, int]:
    """The key by which a partition that is named twice is fetched once, as in Kafka."""
    return part.topic, part.topic_id, part.wanted.partition


def _resumed(
    replica_manager: ReplicaManager, session: FetchSession, request: FetchRequest, replica_id: int
) -> FetchContext:
    if session.waiting:
        replica_manager.delayed_operations.complete_session_fetch(session)
    session.change_view((replica_id, request.isolation_level))
    return _IncrementalFetchContext(replica_manager.delayed_operations.sessions, session)


def _whole(
    replica_manager: ReplicaManager,
    request: FetchRequest,
    replica_id: int,
    by_id: bool,
    parts: Sequence[CachedPartition],
) -> FetchContext:
    """The context of a request that names all its partitions."""
    if request.session_epoch != INITIAL_EPOCH:
        return _SessionlessFetchContext(parts)
    view = replica_id, request.isolation_level
    return _FullFetchContext(replica_manager.delayed_operations.sessions, parts, view, by_id=by_id)


class _SessionlessFetchContext:
    """A request without session: it names all its partitions."""

    def __init__(self, parts: Sequence[CachedPartition]) -> None:
        self._parts = parts

    @property
    def size(self) -> int:
        return len(self._parts)

    @property
    def can_wait(self) -> bool:
        return bool(self._parts)

    def parts(self) -> Sequence[CachedPartition]:
        return self._parts

    def begin_wait(self, results: Sequence[ReadResult]) -> Sequence[FetchKey]:
        return [result.topic_partition for result in results]

    def end_wait(self) -> None:
        return

    @property
    def superseded(self) -> bool:
        return False

    def answer(
        self, results: Sequence[ReadResult], now_ms: int
    ) -> tuple[int, Sequence[ReadResult]]:
        del now_ms
        return NO_SESSION, results

    def begin_slices(self, now_ms: int) -> Slices[int]:
        del now_ms
        yield 0
        return NO_SESSION

    def is_answered(self, result: ReadResult) -> bool:
        del result
        return True

    def has_new_due(self, results: Sequence[ReadResult]) -> bool:
        del results
        return False


class _FullFetchContext(_SessionlessFetchContext):
    """A request that names all its partitions, and asks for a session for them."""

    def __init__(
        self,
        sessions: FetchSessionCache,
        parts: Sequence[CachedPartition],
        view: View,
        *,
        by_id: bool,
    ) -> None:
        super().__init__(parts)
        self._sessions = sessions
        self._view = view
        self._by_id = by_id
        self._session: FetchSession | None = None

    def begin_slices(self, now_ms: int) -> Slices[int]:
        sessions = self._sessions
        first = self._parts[:SLICE_PARTITIONS]
        session = sessions.open(first, self._view, by_id=self._by_id, now_ms=now_ms)
        for start in range(SLICE_PARTITIONS, len(self._parts), SLICE_PARTITIONS):
            yield SLICE_PARTITIONS * PARTITION_UNITS
            if session is None or session.closed:
                break
            piece = self._parts[start : start + SLICE_PARTITIONS]
            if not sessions.has_room(len(piece)):
                sessions.close(session)
                break
            sessions.add(session, piece)
        self._session = session
        return NO_SESSION if session is None or session.closed else session.session_id

    def is_answered(self, result: ReadResult) -> bool:
        if self._session is not None and not self._session.closed:
            _update_session(self._sessions, self._session, result)
        return True

    def answer(
        self, results: Sequence[ReadResult], now_ms: int
    ) -> tuple[int, Sequence[ReadResult]]:
        session = self._sessions.open(self._parts, self._view, by_id=self._by_id, now_ms=now_ms)
        if session is None:
            return NO_SESSION, results
        for result in results:
            _update_session(self._sessions, session, result)
        return session.session_id, results


class _IncrementalFetchContext:
    """A request of a session: it names only the partitions that changed."""

    def __init__(self, sessions: FetchSessionCache, session: FetchSession) -> None:
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch

    @property
    def size(self) -> int:
        return len(self._session.due)

    @property
    def can_wait(self) -> bool:
        return True

    def parts(self) -> Sequence[CachedPartition]:
        return list(self._session.due)

    def begin_slices(self, now_ms: int) -> Slices[int]:
        del now_ms
        yield 0
        return self._session.session_id

    def is_answered(self, result: ReadResult) -> bool:
        session = self._session
        return not session.closed and _update_session(self._sessions, session, result)

    def has_new_due(self, results: Sequence[ReadResult]) -> bool:
        left_due = sum(not result.drained for result in results)
        return len(self._session.due) > left_due

    def begin_wait(self, results: Sequence[ReadResult]) -> Sequence[FetchKey]:
        # The others are watched already.
        for result in results:
            self._sessions.watch(result.part, result.topic_partition)
        self._session.waiting = True
        return (self._session,)

    def end_wait(self) -> None:
        self._sessions.end_wait(self._session)

    @property
    def superseded(self) -> bool:
        return self._session.epoch != self._epoch

    def answer(
        self, results: Sequence[ReadResult], now_ms: int
    ) -> tuple[int, Sequence[ReadResult]]:
        del now_ms
        return self._session.session_id, [
            result for result in results if _update_session(self._sessions, self._session, result)
        ]


def _update_session(sessions: FetchSessionCache, session: FetchSession, result: ReadResult) -> bool:
    """Update the session with a result.  Return whether the result is news to the client."""
    part = result.part
    if result.drained:
        sessions.watch(part, result.topic_partition)
    session.answered(part, result.data, drained=result.drained)
    return part.update_response(result.data)
