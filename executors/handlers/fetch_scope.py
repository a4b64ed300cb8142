"""What a fetch is about: the partitions of its request, or those of its session (KIP-227).

Owns: which partitions are looked at, which of the looks are answered, and what the session learns
of it.  Must not know how a partition is read or how an answer waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sparklog.executors.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    PARTITION_UNITS,
    PIECE_PARTITIONS,
    Awaited,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    View,
    wanted_partitions,
)
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.slices import Slices, in_slices
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.fetch import FetchRequest, PartitionData


@dataclass(slots=True)
class Look:
    """What was found in one partition.

    ``drained``: nothing is left to read for this reader, and nothing is wrong.  ``urgent``: the
    answer must not wait for more.  ``stale``: a follower lacks a high watermark, and may wait a
    little for records that it goes with.
    """

    part: FetchedPartition
    topic: str
    data: PartitionData
    size: int = 0
    drained: bool = False
    urgent: bool = False
    stale: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.data.partition_index)


class Scope(Protocol):
    """What one fetch is about."""

    @property
    def size(self) -> int:
        """How many partitions ``parts`` gives."""

    @property
    def can_wait(self) -> bool:
        """False when nothing is asked for."""

    def parts(self) -> Sequence[FetchedPartition]:
        """Look at these, in this order."""

    def wait_for(self, looks: Sequence[Look]) -> Sequence[Awaited]:
        """The fetch waits: what is to wake it."""

    def wait_over(self) -> None:
        """It no longer waits."""

    @property
    def overtaken(self) -> bool:
        """Whether the session went on with another request while this fetch waited."""

    def answer(self, looks: Sequence[Look], now_ms: int) -> tuple[int, Sequence[Look]]:
        """The session's id and what goes into the answer, which is now to be sent."""

    def begin_slices(self, now_ms: int) -> Slices[int]:
        """The fetch looks in slices, and its answer will be sent whatever it finds; the session's
        id.  ``answer`` is not called then."""

    def answers(self, look: Look) -> bool:
        """After ``begin_slices``: whether a look goes into the answer.  To be asked right after the
        look: nothing may change between what is seen and what the session learns of it."""

    def has_more(self, looks: Sequence[Look]) -> bool:
        """After ``begin_slices``: whether anything has become due since these looks began."""


def scope_of(
    replica_manager: ReplicaManager, request: FetchRequest, replica_id: int, by_id: bool
) -> Scope:
    """Raises KafkaError when the session that the request names does not go with it."""
    session = replica_manager.delayed_operations.sessions.resume(
        request, by_id=by_id, now_ms=replica_manager.monotonic_ms()
    )
    if session is not None:
        return _resumed(replica_manager, session, request, replica_id)
    parts = list(wanted_partitions(request.topics))
    if len(parts) > 1:
        parts = list({_named(part): part for part in parts}.values())
    return _whole(replica_manager, request, replica_id, by_id, parts)


def scope_in_slices(
    replica_manager: ReplicaManager, request: FetchRequest, replica_id: int, by_id: bool
) -> Slices[Scope]:
    """``scope_of`` for a request that names many partitions."""
    now_ms = replica_manager.monotonic_ms()
    resumed = replica_manager.delayed_operations.sessions.resume_in_slices(
        request, by_id=by_id, now_ms=now_ms
    )
    session = yield from resumed
    if session is not None:
        return _resumed(replica_manager, session, request, replica_id)
    once: dict[tuple[str, UUID | None, int], FetchedPartition] = {}

    def add(part: FetchedPartition) -> None:
        once[_named(part)] = part

    yield from in_slices(add, wanted_partitions(request.topics), PARTITION_UNITS)
    return _whole(replica_manager, request, replica_id, by_id, list(once.values()))


def _named(part: FetchedPartition) -> tuple[str, UUID | None, int]:
    """A partition that is named twice is fetched once; the last word counts, as in Kafka."""
    return part.topic, part.topic_id, part.wanted.partition


def _resumed(
    replica_manager: ReplicaManager, session: FetchSession, request: FetchRequest, replica_id: int
) -> Scope:
    if session.waiting:
        replica_manager.delayed_operations.wake_session(session)
    session.look_through((replica_id, request.isolation_level))
    return _SessionScope(replica_manager.delayed_operations.sessions, session)


def _whole(
    replica_manager: ReplicaManager,
    request: FetchRequest,
    replica_id: int,
    by_id: bool,
    parts: Sequence[FetchedPartition],
) -> Scope:
    """The scope of a request that is whole in itself."""
    if request.session_epoch != INITIAL_EPOCH:
        return _RequestScope(parts)
    view = replica_id, request.isolation_level
    return _OpeningScope(replica_manager.delayed_operations.sessions, parts, view, by_id=by_id)


class _RequestScope:
    """The request says everything."""

    def __init__(self, parts: Sequence[FetchedPartition]) -> None:
        self._parts = parts

    @property
    def size(self) -> int:
        return len(self._parts)

    @property
    def can_wait(self) -> bool:
        return bool(self._parts)

    def parts(self) -> Sequence[FetchedPartition]:
        return self._parts

    def wait_for(self, looks: Sequence[Look]) -> Sequence[Awaited]:
        return [look.topic_partition for look in looks]

    def wait_over(self) -> None:
        return

    @property
    def overtaken(self) -> bool:
        return False

    def answer(self, looks: Sequence[Look], now_ms: int) -> tuple[int, Sequence[Look]]:
        del now_ms
        return NO_SESSION, looks

    def begin_slices(self, now_ms: int) -> Slices[int]:
        del now_ms
        yield 0
        return NO_SESSION

    def answers(self, look: Look) -> bool:
        del look
        return True

    def has_more(self, looks: Sequence[Look]) -> bool:
        del looks
        return False


class _OpeningScope(_RequestScope):
    """The request says everything, and asks for a session to go on with."""

    def __init__(
        self,
        sessions: FetchSessionCache,
        parts: Sequence[FetchedPartition],
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
        first = self._parts[:PIECE_PARTITIONS]
        session = sessions.open(first, self._view, by_id=self._by_id, now_ms=now_ms)
        for start in range(PIECE_PARTITIONS, len(self._parts), PIECE_PARTITIONS):
            yield PIECE_PARTITIONS * PARTITION_UNITS
            if session is None or session.closed:
                break
            piece = self._parts[start : start + PIECE_PARTITIONS]
            if not sessions.has_room(len(piece)):
                sessions.close(session)
                break
            sessions.add(session, piece)
        self._session = session
        return NO_SESSION if session is None or session.closed else session.session_id

    def answers(self, look: Look) -> bool:
        if self._session is not None and not self._session.closed:
            _learn(self._sessions, self._session, look)
        return True

    def answer(self, looks: Sequence[Look], now_ms: int) -> tuple[int, Sequence[Look]]:
        session = self._sessions.open(self._parts, self._view, by_id=self._by_id, now_ms=now_ms)
        if session is None:
            return NO_SESSION, looks
        for look in looks:
            _learn(self._sessions, session, look)
        return session.session_id, looks


class _SessionScope:
    """The session says everything but what the request changed."""

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

    def parts(self) -> Sequence[FetchedPartition]:
        return list(self._session.due)

    def begin_slices(self, now_ms: int) -> Slices[int]:
        del now_ms
        yield 0
        return self._session.session_id

    def answers(self, look: Look) -> bool:
        session = self._session
        return not session.closed and _learn(self._sessions, session, look)

    def has_more(self, looks: Sequence[Look]) -> bool:
        left_due = sum(not look.drained for look in looks)
        return len(self._session.due) > left_due

    def wait_for(self, looks: Sequence[Look]) -> Sequence[Awaited]:
        # The others are watched already.
        for look in looks:
            self._sessions.watch(look.part, look.topic_partition)
        self._session.waiting = True
        return (self._session,)

    def wait_over(self) -> None:
        self._sessions.wait_over(self._session)

    @property
    def overtaken(self) -> bool:
        return self._session.epoch != self._epoch

    def answer(self, looks: Sequence[Look], now_ms: int) -> tuple[int, Sequence[Look]]:
        del now_ms
        return self._session.session_id, [
            look for look in looks if _learn(self._sessions, self._session, look)
        ]


def _learn(sessions: FetchSessionCache, session: FetchSession, look: Look) -> bool:
    """Remember what the client is told; whether it is news to it."""
    part = look.part
    if look.drained:
        sessions.watch(part, look.topic_partition)
    session.answered(part, look.data, drained=look.drained)
    return part.is_news(look.data)
