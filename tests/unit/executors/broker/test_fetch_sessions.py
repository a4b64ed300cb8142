"""Fetch sessions without a broker: epochs, what is due, who watches what."""

from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.fetch_sessions.session import (
    CachedPartition,
    FetchSession,
    next_epoch,
    requested_partitions,
)
from sparklog.executors.fetch_sessions.session_cache import FetchSessionCache
from sparklog.types import MAX_INT32, TopicPartition
from sparklog.wire.protocol.messages.fetch import FetchRequest, PartitionData
from tests.unit.executors.broker.session_maker import (
    CLIENT,
    FOLLOWER,
    forgotten,
    opened,
    sessions,
    topics,
    used,
)

NOTHING = PartitionData(high_watermark=5, log_start_offset=0, records=b"")
RECORDS = PartitionData(high_watermark=5, log_start_offset=0, records=b"r")
ERROR = PartitionData(error_code=3, high_watermark=-1, records=b"")


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def opened_and_drained(
    cache: FetchSessionCache, count: int, view: tuple[int, int] = CLIENT
) -> FetchSession:
    session = opened(cache, count, 0, view)
    assert session is not None
    for part in list(session.due):
        drain(cache, part)
    return session


def drain(cache: FetchSessionCache, part: CachedPartition) -> None:
    """As an answer does that says that there is nothing (more)."""
    assert part.session is not None
    cache.watch(part, tp(part.wanted.partition))
    part.session.answered(part, NOTHING, drained=True)
    part.update_response(NOTHING)


def due(session: FetchSession) -> list[int]:
    return [part.wanted.partition for part in session.due]


def refusal(
    cache: FetchSessionCache, session_id: int, epoch: int, *, by_id: bool = False
) -> ErrorCode:
    request = FetchRequest(session_id=session_id, session_epoch=epoch)
    with pytest.raises(KafkaError) as caught:
        cache.resume(request, by_id=by_id, now_ms=0)
    return caught.value.code


def test_epochs_count_up_and_skip_zero() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT32)] == [1, 2, 1]


def test_ids_are_neither_zero_nor_taken() -> None:
    ids = iter([0, 5, 5, 0, 6])
    cache = FetchSessionCache(lambda: 2, lambda: next(ids))
    made = [opened(cache, 1, 0) for _ in range(2)]
    assert [session.session_id for session in made if session] == [5, 6]


def test_a_request_must_name_the_session_and_its_next_epoch() -> None:
    cache = sessions()
    session = opened(cache, 2, 0)
    assert session is not None
    assert (session.session_id, session.epoch) == (7, 1)
    assert refusal(cache, 0, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(cache, 8, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(cache, 7, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(cache, 7, -5) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(cache, 7, 1, by_id=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert session.epoch == 1
    assert used(cache, session, 0) is session
    assert refusal(cache, 7, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (session.epoch, cache.incremental_fetches) == (2, 1)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_request_that_is_whole_ends_the_session_it_names(epoch: int) -> None:
    cache = sessions()
    session = opened(cache, 2, 0)
    assert session is not None
    for session_id in (0, 99):
        request = FetchRequest(session_id=session_id, session_epoch=epoch)
        assert cache.resume(request, by_id=False, now_ms=0) is None
    assert len(cache) == 1
    request = FetchRequest(session_id=session.session_id, session_epoch=epoch)
    assert cache.resume(request, by_id=False, now_ms=0) is None
    assert (len(cache), cache.partitions_held, session.closed) == (0, 0, True)


def test_only_what_changed_is_due() -> None:
    cache = sessions()
    session = opened_and_drained(cache, 5)
    assert due(session) == []
    assert list(cache.changed(tp(3))) == []
    assert list(cache.changed(tp(3))) == []
    assert list(cache.changed(tp(9))) == []
    assert due(session) == [3]
    used(cache, session, 0, topics=topics(1, 3, 6, offset=4), forgotten_topics_data=forgotten(3, 4))
    assert due(session) == [1, 6]
    assert [p.wanted.fetch_offset for p in session.partitions.values()] == [0, 4, 0, 4]
    assert cache.partitions_held == 4
    cache.changed(tp(4))
    assert due(session) == [1, 6]
    cache.check_invariants()


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    session = opened_and_drained(cache, 2)
    assert used(cache, session, 0, forgotten_topics_data=forgotten(0, 1)) is None
    assert (len(cache), session.closed) == (0, True)
    cache.check_invariants()


def test_a_session_that_grows_beyond_the_limit_ends() -> None:
    cache = sessions(partitions_max=3)
    session = opened_and_drained(cache, 2)
    with pytest.raises(KafkaError) as caught:
        used(cache, session, 0, topics=topics(2, 3))
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partitions_held) == (0, 0)


def test_another_view_makes_everything_due() -> None:
    session = opened_and_drained(sessions(), 3)
    session.change_view(CLIENT)
    assert due(session) == []
    session.change_view((-1, 1))
    assert due(session) == [0, 1, 2]


def test_partitions_with_records_queue_up_again_behind_the_others() -> None:
    session = opened(sessions(), 4, 0)
    assert session is not None
    first, second, third, _ = session.due
    session.answered(first, RECORDS, drained=False)
    session.answered(second, ERROR, drained=False)
    session.answered(third, NOTHING, drained=False)
    assert due(session) == [1, 2, 3, 0]


def test_news_are_records_marks_that_moved_and_errors() -> None:
    (part,) = (opened(sessions(), 1, 0) or pytest.fail("no session")).due
    moved = PartitionData(high_watermark=6, log_start_offset=0, records=b"")
    cut = PartitionData(high_watermark=6, log_start_offset=2, records=b"")
    told = [
        part.update_response(data) for data in (NOTHING, NOTHING, RECORDS, moved, moved, cut, cut)
    ]
    assert told == [True, False, True, True, False, True, False]
    # Errors are told as long as they last; that one is over is news.
    assert [part.update_response(data) for data in (ERROR, ERROR, cut, cut)] == [
        True,
        True,
        True,
        False,
    ]


def test_a_fetch_that_waits_hears_of_every_change() -> None:
    cache = sessions()
    waiting, other = opened_and_drained(cache, 2), opened_and_drained(cache, 2)
    waiting.waiting = True
    assert [list(cache.changed(tp(0))) for _ in range(2)] == [[waiting], [waiting]]
    cache.check_invariants()
    assert (due(waiting), due(other)) == ([0], [0])
    cache.end_wait(waiting)
    assert [list(cache.changed(tp(n))) for n in (0, 1, 0)] == [[], [], []]
    assert due(waiting) == [0, 1]
    cache.check_invariants()


def test_a_closed_session_is_heard_of_while_its_fetch_waits() -> None:
    cache = sessions()
    session = opened_and_drained(cache, 1)
    session.waiting = True
    cache.close(session)
    assert list(cache.changed(tp(0))) == [session]
    cache.end_wait(session)
    assert list(cache.changed(tp(0))) == []
    assert cache._watching == {}


def test_what_is_not_replicated_is_for_followers() -> None:
    cache = sessions()
    client, follower = opened_and_drained(cache, 1), opened_and_drained(cache, 1, FOLLOWER)
    client.waiting = follower.waiting = True
    assert list(cache.changed(tp(0), followers_only=True)) == [follower]
    assert (due(client), due(follower)) == ([], [0])
    assert list(cache.changed(tp(0))) == [client, follower]


def test_ids_and_names_do_not_mix() -> None:
    cache = sessions()
    one, other = UUID(int=1), UUID(int=2)
    request = FetchRequest(topics=(*topics(0, topic=one), *topics(0, topic=other)))
    session = cache.open(list(requested_partitions(request.topics)), CLIENT, by_id=True, now_ms=0)
    assert session is not None
    assert list(session.partitions) == [(one, 0), (other, 0)]
    used(cache, session, 0, topics=topics(0, topic=one, offset=9))
    assert [part.wanted.fetch_offset for part in session.partitions.values()] == [9, 0]
