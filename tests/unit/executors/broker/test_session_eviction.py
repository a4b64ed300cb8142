"""Which session gives way: age, use, size and privilege."""

import gc
import random

from sparklog.executors.fetch_sessions.eviction import SessionEviction, value_of
from sparklog.executors.fetch_sessions.session import FetchSession
from sparklog.executors.fetch_sessions.session_cache import FetchSessionCache
from tests.unit.executors.broker.session_maker import (
    CLIENT,
    FOLLOWER,
    IDLE_MS,
    opened,
    sessions,
    topics,
    used,
)


def held(cache: FetchSessionCache, *candidates: FetchSession | None) -> list[bool]:
    cache.check_invariants()
    return [s is not None and cache.get(s.session_id) is s for s in candidates]


def test_no_slot_no_session() -> None:
    cache = sessions(slots=0)
    assert opened(cache, 5, 0) is None
    assert opened(cache, 5, 0, FOLLOWER) is None
    assert cache.as_json() == {
        "fetch_sessions": 0,
        "fetch_session_partitions": 0,
        "fetch_session_evictions": 0,
        "incremental_fetches": 0,
    }


def test_the_longest_unused_goes_when_it_is_idle() -> None:
    cache = sessions(slots=2)
    big, small = opened(cache, 50, 0), opened(cache, 1, 1)
    assert big is not None
    used(cache, big, 2)
    # Not even the largest newcomer, as long as both are young.
    assert opened(cache, 99, IDLE_MS + 1) is None
    newcomer = opened(cache, 1, IDLE_MS + 2)
    assert held(cache, big, small, newcomer) == [True, False, True]
    assert (len(cache), cache.evictions, cache.partitions_held) == (2, 1, 51)


def test_a_larger_newcomer_takes_the_place_of_the_smallest_that_is_not_young() -> None:
    cache = sessions(slots=3)
    old = [opened(cache, size, 0) for size in (4, 2, 3)]
    for session in old:
        assert session is not None
        used(cache, session, IDLE_MS + 1)
    assert opened(cache, 2, IDLE_MS + 2) is None  # as large is not larger
    newcomer = opened(cache, 3, IDLE_MS + 2)
    assert held(cache, *old, newcomer) == [True, False, True, True]
    # The newcomer is young itself.
    assert opened(cache, 3, IDLE_MS + 3) is None
    assert held(cache, old[0], old[2], newcomer) == [True, True, True]


def test_size_counts_as_of_the_last_use() -> None:
    cache = sessions(slots=2)
    first, second = opened(cache, 2, 0), opened(cache, 3, 0)
    assert first is not None
    assert second is not None
    used(cache, first, IDLE_MS + 1)
    used(cache, second, IDLE_MS + 1)
    used(cache, first, IDLE_MS + 2, topics=topics(5, 6, 7, 8))
    newcomer = opened(cache, 4, IDLE_MS + 3)
    assert held(cache, first, second, newcomer) == [True, False, True]


def test_a_follower_takes_the_place_of_a_client_however_young_and_large() -> None:
    cache = sessions(slots=2)
    client, follower = opened(cache, 90, 0), opened(cache, 1, 0, FOLLOWER)
    second = opened(cache, 1, 1, FOLLOWER)
    assert held(cache, client, follower, second) == [False, True, True]
    # Young followers are spared by both.
    assert opened(cache, 9, 2, FOLLOWER) is None
    assert opened(cache, 9, 2) is None
    # Older ones by clients only.
    assert follower is not None
    assert second is not None
    used(cache, follower, IDLE_MS + 1)
    used(cache, second, IDLE_MS + 2)
    assert opened(cache, 9, IDLE_MS + 3) is None
    third = opened(cache, 9, IDLE_MS + 3, FOLLOWER)
    assert held(cache, follower, second, third) == [False, True, True]


def test_all_sessions_together_hold_so_many_partitions() -> None:
    cache = sessions(slots=5, partitions_max=10)
    first = opened(cache, 6, 0)
    assert opened(cache, 5, 1) is None
    assert opened(cache, 11, 1) is None
    second = opened(cache, 4, 1)
    assert held(cache, first, second) == [True, True]
    third = opened(cache, 5, IDLE_MS + 1)
    assert held(cache, first, second, third) == [False, True, True]


class Plainly:
    """The same rules over a list."""

    def __init__(self) -> None:
        self.values: dict[FetchSession, tuple[bool, int, int]] = {}
        self.for_all: set[FetchSession] = set()

    def touch(self, session: FetchSession, now_ms: int) -> None:
        self.values.pop(session, None)
        self.values[session] = value_of(session)
        if now_ms - session.created_ms > IDLE_MS:
            self.for_all.add(session)

    def remove(self, session: FetchSession) -> None:
        self.values.pop(session, None)
        self.for_all.discard(session)

    def session_to_evict(self, privileged: bool, size: int, now_ms: int) -> FetchSession | None:
        if not self.values:
            return None
        stale = min(self.values, key=lambda s: s.last_used_ms)
        if now_ms - stale.last_used_ms > IDLE_MS:
            return stale
        allowed = [s for s in self.values if s in self.for_all or (privileged and not s.privileged)]
        least_valuable = min(allowed, key=self.values.__getitem__, default=None)
        if least_valuable is None or (privileged, size, 0) < self.values[least_valuable]:
            return None
        return least_valuable


def test_it_does_what_a_plain_list_does() -> None:
    chance = random.Random(5)
    eviction, plain = SessionEviction(IDLE_MS), Plainly()
    live: list[FetchSession] = []
    chosen = 0
    for step in range(4000):
        now_ms = step * 20
        action = chance.random()
        if action < 0.3 and len(live) < 30:
            view = chance.choice((CLIENT, FOLLOWER))
            live.append(FetchSession(step + 1, view, by_id=False, now_ms=now_ms))
        elif action < 0.4 and live:
            gone = live.pop(chance.randrange(len(live)))
            eviction.remove(gone)
            plain.remove(gone)
        if live:
            session = chance.choice(live[-1:] if action < 0.3 else live)
            for number in range(chance.randrange(4)):
                session.partitions["t", number] = None  # type: ignore[assignment]
            for each in (eviction, plain):
                session.last_used_ms = now_ms
                each.touch(session, now_ms)
        privileged, size = chance.random() < 0.5, chance.randrange(6)
        found = eviction.session_to_evict(privileged=privileged, size=size, now_ms=now_ms)
        assert found is plain.session_to_evict(privileged, size, now_ms)
        chosen += found is not None
    assert chosen > 1000


def test_nothing_is_left_of_a_session_that_was_closed() -> None:
    """Each may hold hundreds of thousands of partitions; a client may open one after the other."""
    before = living()
    cache = sessions(slots=3)
    kept = opened(cache, 2, 0)
    for now_ms in range(10):
        session = opened(cache, 3, now_ms, FOLLOWER if now_ms % 2 else CLIENT)
        assert session is not None
        used(cache, session, now_ms + IDLE_MS + 1)
        cache.close(session)
    del session
    assert [each for each in living() if each not in before] == [kept]


def living() -> list[FetchSession]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, FetchSession)]
