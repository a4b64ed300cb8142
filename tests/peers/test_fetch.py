"""Fetch, as Kafka answers it: bounds, limits, waiting, epochs, and the bytes themselves."""

from typing import Any
from uuid import UUID

import pytest

from sparklog.types import Compression
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from sparklog.wire.protocol.schema import Request
from tests.peers.both import TIMEOUT_MS, Both, Side, batch, produce
from tests.peers.deviations import ABOVE_ALL_EPOCHS, WHOLE_BATCHES, whole_batches

BY_NAME = range(4, 13)
BY_ID = range(13, 19)
SOME = (4, 11, 12)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
#: Sessions are numbered as it comes.
SESSION_ID = (r"session_id",)
BATCH = batch(b"x" * 100, b"y" * 100)


def fetching(topic: str, *wanted: FetchPartition, by_id: bool = False, **more: Any) -> Any:
    def request(side: Side) -> Request:
        named: Any = {"topic_id": side.ids[topic]} if by_id else {"topic": topic}
        partitions = wanted or (at(0),)
        return FetchRequest(
            **{
                "topics": (FetchTopic(**named, partitions=partitions),),
                "max_bytes": 1 << 24,
                **more,
            }
        )

    return request


def at(offset: int, partition: int = 0, size: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=size, **more
    )


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    """Six batches of two records in partition 0, three in partition 1, none in partition 2."""
    name = both.create("fetched-from", 3)
    codecs = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
    both.fill(name, *(batch(b"a" * 50, b"b" * 50, compression=codec) for codec in codecs))
    both.fill(name, BATCH, BATCH)
    both.fill(name, BATCH, BATCH, BATCH, partition=1)
    return name


@pytest.fixture(scope="module")
def cut(both: Both) -> str:
    """With offsets 0 to 2 deleted."""
    name = both.create("cut-at-3")
    both.fill(name, BATCH, BATCH)
    wanted = DeleteRecordsPartition(partition_index=0, offset=3)
    topics = (DeleteRecordsTopic(name=name, partitions=(wanted,)),)
    both.same(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 2)
    return name


def test_every_version(both: Both, topic: str) -> None:
    both.same(fetching(topic), BY_NAME)
    both.same(fetching(topic, by_id=True), BY_ID)


def test_from_every_offset(both: Both, topic: str) -> None:
    for offset in range(-2, 15):
        both.same(fetching(topic, at(offset)), SOME)


def test_partitions_that_are_not_there(both: Both, topic: str) -> None:
    for partition in (3, -1):
        both.same(fetching(topic, at(0, partition)), SOME)
        both.same(fetching(topic, at(0, partition), by_id=True), (13, 16, 18))


def test_topics_that_are_not_there(both: Both) -> None:
    for name in ("not-there", "", "bad name"):
        both.same(fetching(name), SOME)
    for topic_id in (UUID(int=3), None):
        wanted = FetchTopic(topic_id=topic_id, partitions=(at(0),))
        both.same(FetchRequest(topics=(wanted,)), (13, 16, 18))


#: Sizes around the ends of batches, and whether Kafka cuts one to pieces for them.
SIZES = [
    (0, False),
    (1, False),
    (len(BATCH) - 1, False),
    (len(BATCH), False),
    (len(BATCH) + 1, True),
    (2 * len(BATCH), False),
    (2 * len(BATCH) + 1, True),
    (100 * len(BATCH), False),
]


@pytest.mark.parametrize(("size", "cut"), SIZES)
def test_bytes_of_a_partition(both: Both, topic: str, size: int, cut: bool) -> None:
    first = at(0, 1, size=size)
    for wanted in (
        (first,),
        (first, at(8, size=size)),
        (at(0, 2), at(8, size=size), first),
    ):
        meant = [WHOLE_BATCHES] if is_cut(both, fetching(topic, *wanted)) else []
        both.same(fetching(topic, *wanted), SOME, *meant)
    assert cut is is_cut(both, fetching(topic, first))


@pytest.mark.parametrize(("size", "cut"), SIZES)
def test_bytes_of_a_request(both: Both, topic: str, size: int, cut: bool) -> None:
    del cut
    for wanted in ((at(8), at(0, 1)), (at(0, 1), at(8)), (at(12), at(0, 1))):
        request = fetching(topic, *wanted, max_bytes=size)
        both.same(request, SOME, *[WHOLE_BATCHES] if is_cut(both, request) else [])


def is_cut(both: Both, request: Any) -> bool:
    """Whether Kafka ends some partition's records in the middle of a batch."""
    answered = both.kafka.exchange(request(both.kafka), 12)
    return any(
        whole_batches(part.records) != part.records
        for topic in answered.responses
        for part in topic.partitions
    )


def test_several_partitions_of_which_some_are_refused(both: Both, topic: str) -> None:
    both.same(fetching(topic, at(0), at(99, 1), at(0, 7), at(0, 2), max_wait_ms=5000), SOME)


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_isolation(both: Both, topic: str, isolation: int) -> None:
    both.same(fetching(topic, isolation_level=isolation), SOME)
    both.same(fetching(topic, at(12), isolation_level=isolation), SOME)
    both.same(fetching(topic, at(99), isolation_level=isolation), SOME)


@pytest.mark.parametrize("epoch", [-1, 0, 1, 99])
def test_leader_epochs(both: Both, topic: str, epoch: int) -> None:
    both.same(fetching(topic, at(0, current_leader_epoch=epoch)), (9, 11, 12))


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, -1), (0, 0), (5, 0), (12, 0), (13, 0), (0, 1), (12, 7)]
)
def test_the_epoch_that_was_fetched_last(both: Both, topic: str, offset: int, epoch: int) -> None:
    """Where the log has left the leader's history is told to whoever says how far it knows it."""
    meant = [ABOVE_ALL_EPOCHS] if epoch > 0 else []
    both.same(fetching(topic, at(offset, last_fetched_epoch=epoch)), 12, *meant)


def test_nothing_new(both: Both, topic: str) -> None:
    for min_bytes, wait_ms in ((0, 10_000), (1, 0), (1, 100), (-1, 10_000)):
        both.same(fetching(topic, at(12), min_bytes=min_bytes, max_wait_ms=wait_ms), SOME)


@pytest.mark.parametrize("min_bytes", [1, 100, 547, 10_000])
def test_a_fetch_that_need_not_wait(both: Both, topic: str, min_bytes: int) -> None:
    wait_ms = 200 if min_bytes > 1000 else 600_000  # which is longer than we wait for an answer
    both.same(fetching(topic, min_bytes=min_bytes, max_wait_ms=wait_ms), 12)


def test_a_fetch_that_waits_for_records(both: Both) -> None:
    name = both.create("waited-for")
    answers = []
    for side in both.sides:
        side.tell(fetching(name, min_bytes=500, max_wait_ms=600_000)(side), 12)
        for _ in range(2):
            answered = side.exchange(produce(name, BATCH), 10, another=True)
            assert answered.responses[0].partition_responses[0].error_code == 0
        answers.append(side.hear(FetchRequest, 12))
    both.compare(*answers)


def test_where_the_log_begins(both: Both, cut: str) -> None:
    for offset in range(7):
        both.same(fetching(cut, at(offset)), SOME)


def test_as_a_follower_or_a_debugger(both: Both, topic: str) -> None:
    both.same(fetching(topic, replica_id=-2), SOME)


def test_nothing_at_all(both: Both) -> None:
    both.same(FetchRequest(max_wait_ms=0), (4, 7, 12))


# -- sessions (KIP-227)


def test_session_errors(both: Both, topic: str) -> None:
    for session_id, epoch in ((0, 1), (7, 0), (7, 1), (7, -1), (0, -5), (-1, 0)):
        request = fetching(topic, session_id=session_id, session_epoch=epoch)
        both.same(request, (7, 12), where=SESSION_ID)


def test_a_session(both: Both) -> None:
    name = both.create("in-session", 2)
    both.fill(name, BATCH)
    ids: dict[str, int] = {}

    def step(epoch: int, *wanted: FetchPartition, **more: Any) -> Any:
        def request(side: Side) -> Request:
            topics = (FetchTopic(topic=name, partitions=wanted),) if wanted else ()
            return FetchRequest(
                session_id=ids.get(side.name, 0),
                session_epoch=epoch,
                topics=topics,
                max_bytes=1 << 24,
                **more,
            )

        return request

    kafka, ours = both.ask(step(0, at(0), at(0, 1)), 12)
    both.compare(kafka, ours, where=SESSION_ID)
    ids.update(kafka=kafka.session_id, ours=ours.session_id)
    assert min(ids.values()) > 0
    both.same(step(1, at(2)), 12, where=SESSION_ID)  # it has read everything
    both.same(step(2), 12, where=SESSION_ID)  # nothing new: no partitions
    both.fill(name, BATCH, partition=1)
    both.same(step(3), 12, where=SESSION_ID)  # only what has something new
    both.same(step(4, at(99)), 12, where=SESSION_ID)  # an error
    both.same(step(5), 12, where=SESSION_ID)  # which is said again
    both.same(step(5), 12, where=SESSION_ID)  # an epoch that was there
    both.same(step(9), 12, where=SESSION_ID)
    both.same(step(-1), 12, where=SESSION_ID)  # the end of the session
    both.same(step(6), 12, where=SESSION_ID)


def test_a_session_that_forgets_and_meets_partitions(both: Both) -> None:
    name = both.create("forgetful", 3)
    both.fill(name, BATCH)
    ids: dict[str, int] = {}

    def step(
        epoch: int, *wanted: FetchPartition, topic: UUID | None = None, forget: tuple[int, ...] = ()
    ) -> Any:
        def request(side: Side) -> Request:
            topic_id = topic or side.ids[name]
            forgotten = (ForgottenTopic(topic_id=topic_id, partitions=forget),) if forget else ()
            return FetchRequest(
                session_id=ids.get(side.name, 0),
                session_epoch=epoch,
                topics=(FetchTopic(topic_id=topic_id, partitions=wanted),) if wanted else (),
                forgotten_topics_data=forgotten,
                max_bytes=1 << 24,
            )

        return request

    kafka, ours = both.ask(step(0, at(0), at(0, 1)), 16)
    both.compare(kafka, ours, where=SESSION_ID)
    ids.update(kafka=kafka.session_id, ours=ours.session_id)
    both.same(step(1), 16, where=SESSION_ID)  # it is sent again until it is read
    both.same(step(2, forget=(0,)), 16, where=SESSION_ID)
    both.fill(name, BATCH, partition=1)
    both.fill(name, BATCH, partition=2)
    both.same(step(3), 16, where=SESSION_ID)
    both.same(step(4, at(2, 1), at(0, 2)), 16, where=SESSION_ID)
    both.same(step(5, at(0, 7)), 16, where=SESSION_ID)
    both.same(step(6, at(0), topic=UUID(int=5)), 16, where=SESSION_ID)
    both.same(step(7), 16, where=SESSION_ID)
    both.same(step(8, forget=(0,), topic=UUID(int=5)), 16, where=SESSION_ID)
    both.same(step(0, at(2, 1)), 16, where=SESSION_ID)  # another one instead
    both.same(step(9), 16, where=SESSION_ID)
