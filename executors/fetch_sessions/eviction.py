"""The eviction of fetch sessions for new ones, by Kafka's rules (KIP-227).

Owns: the value of a session and the order of eviction.  Must not know what is in a session.

1. A session that was not used for longer than ``idle_ms`` is evicted, the longest unused first.
2. Else the least valuable session is evicted, if the new one is worth more.  A follower's session
   is worth more than a consumer's; among equals, the session with more partitions is.
3. A session younger than ``idle_ms`` is spared, except a consumer's session for a follower's.

As in Kafka, a session's age and size are those of its last use.
"""

import heapq
from collections import OrderedDict
from typing import TypeAlias

from sparklog.executors.fetch_sessions.session import FetchSession

#: Kafka's value, which has no setting.
IDLE_MS = 120_000

#: The least valuable session has the smallest value.
Value: TypeAlias = tuple[bool, int, int]


def value_of(session: FetchSession) -> Value:
    return session.privileged, len(session), session.session_id


class SessionEviction:
    """The order of a broker's sessions.  The cost of a step hardly grows with their number."""

    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        #: The sessions' values as of their last use, the longest unused session first.
        self._values: OrderedDict[FetchSession, Value] = OrderedDict()
        self._for_all = _Candidates()
        self._for_privileged = _Candidates()

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note a new session, or a request that has used a session."""
        session.last_used_ms = now_ms
        value = self._values[session] = value_of(session)
        self._values.move_to_end(session)
        grown_up = now_ms - session.created_ms > self._idle_ms
        if grown_up:
            self._for_all.offer(session, value)
        if grown_up or not session.privileged:
            self._for_privileged.offer(session, value)

    def remove(self, session: FetchSession) -> None:
        self._values.pop(session, None)
        self._for_all.withdraw(session)
        self._for_privileged.withdraw(session)

    def session_to_evict(self, *, privileged: bool, size: int, now_ms: int) -> FetchSession | None:
        """The session to evict for a new one with ``size`` partitions.

        None when the new session is not worth an eviction.
        """
        longest_unused = next(iter(self._values), None)
        if longest_unused is None or now_ms - longest_unused.last_used_ms > self._idle_ms:
            return longest_unused
        least_valuable = (self._for_privileged if privileged else self._for_all).least_valuable()
        if least_valuable is None or (privileged, size, 0) < self._values[least_valuable]:
            return None
        return least_valuable


class _Candidates:
    """Sessions by value: a heap, of which outdated entries are skipped.

    The heap holds values and no sessions, so that a removed session is freed at once.
    """

    def __init__(self) -> None:
        self._values: dict[FetchSession, Value] = {}
        self._sessions: dict[Value, FetchSession] = {}
        self._heap: list[Value] = []

    def offer(self, session: FetchSession, value: Value) -> None:
        if self._values.get(session) == value:
            return
        self.withdraw(session)
        self._values[session] = value
        self._sessions[value] = session
        heapq.heappush(self._heap, value)
        if len(self._heap) > 2 * len(self._values) + 16:
            self._heap = list(self._sessions)
            heapq.heapify(self._heap)

    def withdraw(self, session: FetchSession) -> None:
        value = self._values.pop(session, None)
        if value is not None:
            del self._sessions[value]

    def least_valuable(self) -> FetchSession | None:
        while self._heap:
            session = self._sessions.get(self._heap[0])
            if session is not None:
                return session
            heapq.heappop(self._heap)
        return None
