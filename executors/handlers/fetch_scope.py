"""What a fetch is about: the partitions of its request, or those of its session (KIP-227).

Owns: which partitions are looked at, which of the looks are answered, and what the session learns
of it.  Must not know how a partition is read or how an answer waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.executors.fetch_session import (
    INITIAL_EPOCH,
    FetchedPartition,
    FetchSession,
    View,
    wanted_partitions,
)
from sparklog.executors.fetch_sessions import NO_SESSION, Awaited, FetchSessions
from sparklog.executors.partitions import PartitionTable
from sparklog.types import TopicPartition
from sparklog.wire.messages.fetch import FetchRequest, PartitionData


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


def scope_of(table: PartitionTable, request: FetchRequest, replica_id: int, by_id: bool) -> Scope:
    """Raises KafkaError when the session that the request names does not go with it."""
    view = replica_id, request.isolation_level
    sessions = table.waits.sessions
    session = sessions.resume(request, by_id=by_id, now_ms=table.monotonic_ms())
    if session is not None:
        if session.waiting:
            table.waits.wake_session(session)
        session.look_through(view)
        return _SessionScope(sessions, session)
    parts = list(wanted_partitions(request.topics))
    if request.session_epoch != INITIAL_EPOCH:
        return _RequestScope(parts)
    # A partition that is named twice is one of the session all the same; the last word counts.
    once = {(part.topic, part.topic_id, part.wanted.partition): part for part in parts}
    return _OpeningScope(sessions, list(once.values()), view, by_id=by_id)


class _RequestScope:
    """The request says everything."""

    def __init__(self, parts: Sequence[FetchedPartition]) -> None:
        self._parts = parts

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


class _OpeningScope(_RequestScope):
    """The request says everything, and asks for a session to go on with."""

    def __init__(
        self,
        sessions: FetchSessions,
        parts: Sequence[FetchedPartition],
        view: View,
        *,
        by_id: bool,
    ) -> None:
        super().__init__(parts)
        self._sessions = sessions
        self._view = view
        self._by_id = by_id

    def answer(self, looks: Sequence[Look], now_ms: int) -> tuple[int, Sequence[Look]]:
        session = self._sessions.open(self._parts, self._view, by_id=self._by_id, now_ms=now_ms)
        if session is None:
            return NO_SESSION, looks
        for look in looks:
            _learn(self._sessions, session, look)
        return session.session_id, looks


class _SessionScope:
    """The session says everything but what the request changed."""

    def __init__(self, sessions: FetchSessions, session: FetchSession) -> None:
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch

    @property
    def can_wait(self) -> bool:
        return True

    def parts(self) -> Sequence[FetchedPartition]:
        return list(self._session.due)

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


def _learn(sessions: FetchSessions, session: FetchSession, look: Look) -> bool:
    """Remember what the client is told; whether it is news to it."""
    part = look.part
    if look.drained:
        sessions.watch(part, look.topic_partition)
    session.answered(part, look.data, drained=look.drained)
    return part.is_news(look.data)
