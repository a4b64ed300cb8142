"""The cache of a broker's fetch sessions (KIP-227).

Owns: ids and epochs, which sessions exist, and which sessions watch which partition.  Must not know
clocks, where random numbers come from, logs, or how answers are sent.

The cost of a fetch with a session is that of the changed partitions.  Partitions without news are
watched, and ``changed`` makes them due again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.fetch_sessions.eviction import SessionEviction
from sparklog.executors.fetch_sessions.session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    CachedPartition,
    FetchSession,
    View,
    in_small_topics,
    next_epoch,
    requested_partitions,
)
from sparklog.slices import Slices
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic

#: Partitions of all sessions together, because each of them takes memory.
PARTITIONS_MAX = 250_000
#: Units of adding a partition to a session.
PARTITION_UNITS = 2
#: The key of a delayed fetch: a partition, or a session, any of whose partitions may change.
FetchKey: TypeAlias = TopicPartition | FetchSession
#: The session id of requests and answers without session.
NO_SESSION = 0


class FetchSessionCache:
    """``slots`` gives the most sessions; ``new_id`` gives random positive numbers of 31 bits."""

    def __init__(
        self,
        slots: Callable[[], int],
        new_id: Callable[[], int],
        *,
        partitions_max: int = PARTITIONS_MAX,
        eviction: SessionEviction | None = None,
    ) -> None:
        self.evictions = 0
        self.incremental_fetches = 0
        self.partitions_held = 0
        self._slots = slots
        self._new_id = new_id
        self._partitions_max = partitions_max
        self._eviction = eviction or SessionEviction()
        self._sessions: dict[int, FetchSession] = {}
        self._watching: dict[TopicPartition, dict[CachedPartition, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def as_json(self) -> dict[str, int]:
        """The metrics for NodeStatus."""
        return {
            "fetch_sessions": len(self._sessions),
            "fetch_session_partitions": self.partitions_held,
            "fetch_session_evictions": self.evictions,
            "incremental_fetches": self.incremental_fetches,
        }

    # requests

    def resume(self, request: FetchRequest, *, by_id: bool, now_ms: int) -> FetchSession | None:
        """The session of an incremental request, with the changes of the request.

        Returns None for a request that names all its partitions.  Such a request, and a request
        that leaves its session without partitions, ends the session that it names.  Raises
        KafkaError when the request does not fit its session.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            named = self._sessions.get(request.session_id)
            if named is not None:
                self.close(named)
            return None
        session = self._sessions.get(request.session_id)
        _check(session, request, by_id)
        assert session is not None
        self._update(session, request.topics, request.forgotten_topics_data)
        return self._updated(session, now_ms)

    def resume_in_slices(
        self, request: FetchRequest, *, by_id: bool, now_ms: int
    ) -> Slices[FetchSession | None]:
        """``resume``, in slices, for a request that names many partitions."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self.resume(request, by_id=by_id, now_ms=now_ms)
        session = self._sessions.get(request.session_id)
        _check(session, request, by_id)
        assert session is not None
        # No other request of this epoch may begin between the slices.
        session.being_updated = True
        try:
            for topic in in_small_topics(request.topics):
                self._update(session, (topic,), ())
                yield PARTITION_UNITS * (1 + len(topic.partitions))
                _check_not_closed(session)
            for forgotten in in_small_topics(request.forgotten_topics_data):
                self._update(session, (), (forgotten,))
                yield PARTITION_UNITS * (1 + len(forgotten.partitions))
                _check_not_closed(session)
        finally:
            session.being_updated = False
        return self._updated(session, now_ms)

    def _updated(self, session: FetchSession, now_ms: int) -> FetchSession | None:
        if not session.partitions:
            self.close(session)
            return None
        if self.partitions_held > self._partitions_max:
            self.close(session)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.session_id} was closed: all sessions together may hold "
                f"{self._partitions_max} partitions",
            )
        session.epoch = next_epoch(session.epoch)
        self._eviction.touch(session, now_ms)
        self.incremental_fetches += 1
        return session

    def open(
        self, parts: Sequence[CachedPartition], view: View, *, by_id: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session for these partitions, all of which are due.

        Returns None when there is no room; then the client goes on without a session.
        """
        if not parts or not self._make_room(view[0] >= 0, len(parts), now_ms):
            return None
        session = FetchSession(self._unused_id(), view, by_id=by_id, now_ms=now_ms)
        self._sessions[session.session_id] = session
        self.add(session, parts)
        self._eviction.touch(session, now_ms)
        return session

    def has_room(self, partitions: int) -> bool:
        """Whether the sessions may hold ``partitions`` more partitions."""
        return self.partitions_held + partitions <= self._partitions_max

    def add(self, session: FetchSession, parts: Iterable[CachedPartition]) -> None:
        """Add partitions to an open session; they are due."""
        before = len(session)
        for part in parts:
            session.add(part)
        self.partitions_held += len(session) - before

    def close(self, session: FetchSession) -> None:
        """Close a session; its delayed fetch, if there is one, is still answered."""
        del self._sessions[session.session_id]
        self._eviction.remove(session)
        self.partitions_held -= len(session)
        session.closed = True
        if not session.waiting:
            self._unwatch(session.partitions.values())

    # changes

    def watch(self, part: CachedPartition, topic_partition: TopicPartition) -> None:
        """Let the next change of the partition make ``part`` due, or each change while a fetch of
        the session waits."""
        if part.watched == topic_partition:
            return
        if part.watched is not None:
            self._unwatch([part])
        part.watched = topic_partition
        self._watching.setdefault(topic_partition, {})[part] = None

    def changed(
        self, topic_partition: TopicPartition, *, followers_only: bool = False
    ) -> Sequence[FetchSession]:
        """Make a changed partition due.  Return the sessions whose delayed fetch waits for it."""
        watching = self._watching.get(topic_partition)
        if watching is None:
            return ()
        waiting: list[FetchSession] = []
        unwatched: list[CachedPartition] = []
        for part in watching:
            session = part.session
            assert session is not None
            if followers_only and not session.by_follower:
                continue
            session.due[part] = None
            if session.waiting:
                waiting.append(session)
            else:
                unwatched.append(part)
        self._unwatch(unwatched)
        return waiting

    def end_wait(self, session: FetchSession) -> None:
        """Note the end of the session's delayed fetch, answered or not."""
        session.waiting = False
        if session.closed:
            self._unwatch(session.partitions.values())

    def check_invariants(self) -> None:
        held = [part for s in self._sessions.values() for part in s.partitions.values()]
        assert self.partitions_held == len(held)
        watched = [(tp, part) for tp, parts in self._watching.items() for part in parts]
        assert all(part.watched == tp for tp, part in watched)
        assert len(set(map(id, (part for _, part in watched)))) == len(watched)
        for part in held:
            session = part.session
            assert session is not None
            # A partition that is not due must be watched.
            assert part in session.due or part.watched is not None
            assert not session.waiting or part.watched is not None

    def _update(
        self,
        session: FetchSession,
        topics: Iterable[FetchTopic],
        forgotten: Iterable[ForgottenTopic],
    ) -> None:
        before = len(session)
        for part in requested_partitions(topics):
            session.add(part)
        self._unwatch(session.forget(forgotten))
        self.partitions_held += len(session) - before

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        while (
            len(self._sessions) >= self._slots()
            or self.partitions_held + size > self._partitions_max
        ):
            evicted = self._eviction.session_to_evict(
                privileged=privileged, size=size, now_ms=now_ms
            )
            if evicted is None:
                return False
            self.close(evicted)
            self.evictions += 1
        return True

    def _unused_id(self) -> int:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        return session_id

    def _unwatch(self, parts: Iterable[CachedPartition]) -> None:
        for part in parts:
            if part.watched is None:
                continue
            watching = self._watching[part.watched]
            del watching[part]
            if not watching:
                del self._watching[part.watched]
            part.watched = None


def _check_not_closed(session: FetchSession) -> None:
    """Raise KafkaError if another request closed the session between two slices."""
    if session.closed:
        raise KafkaError(
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.session_id} was closed"
        )


def _check(session: FetchSession | None, request: FetchRequest, by_id: bool) -> None:
    if session is None:
        raise KafkaError(
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}"
        )
    if session.epoch != request.session_epoch or session.being_updated:
        raise KafkaError(
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            f"fetch session {session.session_id} expects epoch {session.epoch}, "
            f"not {request.session_epoch}",
        )
    if session.by_id != by_id:
        names = ("names", "ids")
        raise KafkaError(
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            f"fetch session {session.session_id} has topic {names[session.by_id]}, "
            f"not {names[by_id]}",
        )
