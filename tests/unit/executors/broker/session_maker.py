"""Fetch sessions with numbers in place of random ids, for the tests of this folder."""

import itertools
from collections.abc import Sequence
from uuid import UUID

from sparklog.executors.fetch_sessions.eviction import SessionEviction
from sparklog.executors.fetch_sessions.session import (
    CachedPartition,
    FetchSession,
    requested_partitions,
)
from sparklog.executors.fetch_sessions.session_cache import FetchSessionCache
from sparklog.types import NO_NODE
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

CLIENT = (NO_NODE, 0)
FOLLOWER = (2, 0)
IDLE_MS = 1000


def sessions(slots: int = 10, **more: int) -> FetchSessionCache:
    ids = itertools.chain([0], itertools.count(7))
    return FetchSessionCache(
        lambda: slots, lambda: next(ids), eviction=SessionEviction(IDLE_MS), **more
    )


def topics(*numbers: int, topic: str | UUID = "t", offset: int = 0) -> tuple[FetchTopic, ...]:
    parts = tuple(FetchPartition(partition=n, fetch_offset=offset) for n in numbers)
    if isinstance(topic, UUID):
        return (FetchTopic(topic_id=topic, partitions=parts),)
    return (FetchTopic(topic=topic, partitions=parts),)


def forgotten(*numbers: int, topic: str = "t") -> tuple[ForgottenTopic, ...]:
    return (ForgottenTopic(topic=topic, partitions=numbers),)


def parts(count: int) -> Sequence[CachedPartition]:
    return list(requested_partitions(topics(*range(count))))


def opened(
    cache: FetchSessionCache,
    count: int,
    now_ms: int,
    view: tuple[int, int] = CLIENT,
    *,
    by_id: bool = False,
) -> FetchSession | None:
    return cache.open(parts(count), view, by_id=by_id, now_ms=now_ms)


def used(
    cache: FetchSessionCache, session: FetchSession, now_ms: int, **request: object
) -> FetchSession | None:
    """The next incremental request of a session."""
    asked = FetchRequest(
        session_id=session.session_id,
        session_epoch=session.epoch,
        **request,  # type: ignore[arg-type]
    )
    return cache.resume(asked, by_id=session.by_id, now_ms=now_ms)
