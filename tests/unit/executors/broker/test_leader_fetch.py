"""What a follower asks of a leader: whole requests, and what the answers come to."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import FetchPosition
from sparklog.executors.replication.fetch_session_handler import (
    Diverged,
    Fetched,
    FetchSessionHandler,
    OffsetOutOfRange,
    Refused,
)
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

NODE, EPOCH = 3, 40
ID = UUID(int=7)
SESSION = 99
CONFIG = BrokerConfig.resolve({})
WAIT_MS = CONFIG.replica_fetch_wait_max_ms
HERE = FetchPosition(offset=0, last_fetched_epoch=-1, current_leader_epoch=5, log_start_offset=0)


@dataclass(eq=False)
class Replica:
    """A log of which only the position matters here."""

    number: int = 0
    topic_id: UUID = ID
    position: FetchPosition | None = HERE
    high_watermark: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition("t", self.number)

    def fetch_position(self) -> FetchPosition | None:
        return self.position

    def grow(self, count: int) -> None:
        assert self.position is not None
        self.position = self.position._replace(
            offset=self.position.offset + count, last_fetched_epoch=5
        )


class Follower:
    """A ``FetchSessionHandler`` and the time."""

    def __init__(self, *replicas: Replica) -> None:
        self.throttled_until_ms: dict[int, int] = {}
        self.fetch: FetchSessionHandler[Replica] = FetchSessionHandler(NODE, CONFIG, self._wait_ms)
        self.now_ms = 1000
        for each in replicas:
            self.fetch.add_partition(each)

    def ask(self, broker_epoch: int = EPOCH) -> FetchRequest | None:
        return self.fetch.next_request(broker_epoch, self.now_ms)

    def hear(self, *parts: PartitionData, **more: Any) -> list[Any]:
        return self.fetch.handle_response(answer(*parts, **more), self.now_ms)

    def _wait_ms(self, replica: Replica, now_ms: int) -> int:
        return max(self.throttled_until_ms.get(replica.number, 0) - now_ms, 0)

    def open(self) -> None:
        """Ask for everything, and get a session."""
        assert self.ask() is not None
        assert self.hear(session_id=SESSION) == []


def answer(*parts: PartitionData, **more: Any) -> FetchResponse:
    topics = (FetchableTopicResponse(topic_id=ID, partitions=parts),) if parts else ()
    return FetchResponse(responses=topics, **{"session_id": SESSION, **more})


def refusal(code: ErrorCode) -> dict[str, int]:
    return {"error_code": int(code), "session_id": 0}


def request(*numbers: int, offset: int = 0, **more: Any) -> FetchRequest:
    """An incremental request of the session's first epoch."""
    parts = tuple(
        FetchPartition(
            partition=number,
            current_leader_epoch=5,
            fetch_offset=offset,
            last_fetched_epoch=5 if offset else -1,
            log_start_offset=0,
            partition_max_bytes=CONFIG.replica_fetch_max_bytes,
            high_watermark=0,
        )
        for number in numbers
    )
    values: dict[str, Any] = {
        "replica_state": ReplicaState(replica_id=NODE, replica_epoch=EPOCH),
        "max_wait_ms": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": CONFIG.replica_fetch_response_max_bytes,
        "session_id": SESSION,
        "session_epoch": 1,
        "topics": (FetchTopic(topic_id=ID, partitions=parts),) if parts else (),
    }
    return FetchRequest(**{**values, **more})


def opening(*numbers: int, **more: Any) -> FetchRequest:
    values: dict[str, Any] = {"max_wait_ms": 0, "session_id": 0, "session_epoch": 0}
    return request(*numbers, **{**values, **more})


def forgotten(*numbers: int) -> tuple[ForgottenTopic, ...]:
    return (ForgottenTopic(topic_id=ID, partitions=numbers),)


def test_the_first_request_names_everything_and_does_not_wait() -> None:
    follower = Follower(Replica(0), Replica(1))
    assert follower.ask() == opening(0, 1)
    assert follower.ask() is None


def test_what_is_idle_is_told_once() -> None:
    follower = Follower(Replica(0), Replica(1))
    follower.open()
    assert follower.ask() == request()
    assert follower.hear() == []
    assert follower.ask() == request(session_epoch=2)


def test_records_are_of_the_position_that_was_asked_for() -> None:
    replica = Replica(0)
    follower = Follower(replica, Replica(1))
    follower.open()
    follower.ask()
    (fetched,) = follower.hear(
        PartitionData(partition_index=0, high_watermark=4, log_start_offset=1, records=b"abc")
    )
    assert fetched == Fetched(
        replica=replica,
        position=HERE,
        records=memoryview(b"abc"),
        high_watermark=4,
        log_start_offset=1,
    )
    replica.grow(3)
    follower.fetch.position_changed(replica.topic_partition)
    assert follower.ask() == request(0, offset=3, session_epoch=2)


def test_nobody_to_follow_asks_for_nothing() -> None:
    replica = Replica(position=None)
    follower = Follower(replica)
    assert follower.ask() is None
    replica.position = HERE
    follower.fetch.position_changed(replica.topic_partition)
    assert follower.ask() == opening(0)


def test_a_new_replica_overtakes_the_request_that_waits() -> None:
    follower = Follower(Replica(0))
    follower.open()
    assert follower.ask() == request()
    follower.fetch.add_partition(Replica(1))
    assert follower.ask() == request(1, session_epoch=2)
    assert follower.ask() is None
    # The leader keeps only the second; the first ends without a loss.
    assert follower.hear(**refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)) == []
    assert follower.ask() is None
    assert follower.hear() == []
    assert follower.ask() == request(session_epoch=3)


def test_nothing_overtakes_a_request_that_opens_a_session() -> None:
    follower = Follower(Replica(0))
    assert follower.ask() == opening(0)
    follower.fetch.add_partition(Replica(1))
    assert follower.ask() is None
    assert follower.hear() == []
    assert follower.ask() == request(1)


def test_a_replica_that_left_is_taken_back_with_the_next_request() -> None:
    one = Replica(1)
    follower = Follower(Replica(0), one)
    follower.open()
    assert follower.ask() == request()
    follower.fetch.remove_partition(one.topic_partition)
    assert follower.ask() is None
    assert follower.hear(PartitionData(partition_index=1, records=b"a")) == []
    assert follower.ask() == request(session_epoch=2, forgotten_topics_data=forgotten(1))


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    follower = Follower(Replica(0), Replica(1))
    follower.open()
    other = UUID(int=8)
    follower.fetch.add_partition(Replica(1, topic_id=other))
    (topic,) = request(1).topics
    assert follower.ask() == request(
        topics=(replace(topic, topic_id=other),), forgotten_topics_data=forgotten(1)
    )
    assert len(follower.fetch) == 2


def test_a_session_of_nothing_ends() -> None:
    replica = Replica(0)
    follower = Follower(replica)
    follower.open()
    replica.position = None
    follower.fetch.position_changed(replica.topic_partition)
    assert follower.ask() is None
    replica.position = HERE
    # The leader is told to forget the one that it still has.
    assert follower.ask() == opening(0, session_id=SESSION)


def test_an_answer_about_a_log_that_changed_since_is_dropped_and_asked_for_again() -> None:
    replica = Replica(0)
    follower = Follower(replica, Replica(1))
    follower.open()
    follower.ask()
    replica.position = HERE._replace(current_leader_epoch=6)
    assert follower.hear(PartitionData(partition_index=0, records=b"old")) == []
    (topic,) = request(0).topics
    parts = (replace(topic.partitions[0], current_leader_epoch=6),)
    assert follower.ask() == request(topics=(replace(topic, partitions=parts),), session_epoch=2)


def test_an_answer_to_what_was_overtaken_is_dropped_even_if_the_log_came_back() -> None:
    replica = Replica(0)
    follower = Follower(replica)
    follower.open()
    replica.grow(3)
    follower.fetch.position_changed(replica.topic_partition)
    assert follower.ask() == request(0, offset=3)
    replica.position = HERE
    follower.fetch.position_changed(replica.topic_partition)
    assert follower.ask() == request(0, session_epoch=2)
    assert follower.hear(PartitionData(partition_index=0, records=b"from 3 on")) == []
    (fetched,) = follower.hear(PartitionData(partition_index=0, records=b"from 0 on"))
    assert fetched.records == b"from 0 on"


def test_a_log_off_the_leaders_history_is_told_where_it_left_it() -> None:
    replica = Replica(0)
    follower = Follower(replica)
    follower.ask()
    end = EpochEndOffset(epoch=2, end_offset=0)
    assert follower.hear(PartitionData(partition_index=0, diverging_epoch=end)) == [
        Diverged(replica=replica, position=HERE, epoch=2, end_offset=0)
    ]


def test_a_log_that_ends_before_the_leaders_begins_starts_over() -> None:
    replica = Replica(0)
    follower = Follower(replica)
    follower.ask()
    behind = PartitionData(
        partition_index=0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=70
    )
    assert follower.hear(behind) == [
        OffsetOutOfRange(replica=replica, position=HERE, log_start_offset=70)
    ]


def test_an_error_costs_one_replica_a_growing_pause() -> None:
    replica = Replica(0)
    follower = Follower(replica, Replica(1))
    follower.open()
    follower.ask()
    wrong = PartitionData(partition_index=0, error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert follower.hear(wrong) == [Refused(replica=replica, code=wrong.error_code)]
    assert follower.ask() == request(session_epoch=2, forgotten_topics_data=forgotten(0))
    assert follower.fetch.retry_ms == 1050
    follower.now_ms = 1049
    assert follower.ask() is None
    follower.now_ms = 1050
    assert follower.ask() == request(0, session_epoch=3)
    assert follower.hear() == []
    assert follower.hear(wrong) == [Refused(replica=replica, code=wrong.error_code)]
    assert follower.fetch.retry_ms == 1150
    # A new image is worth a try at once.
    follower.fetch.add_partition(replica)
    assert follower.fetch.retry_ms is None
    assert follower.ask() == request(session_epoch=4)


def test_pauses_have_an_end() -> None:
    replica = Replica(0)
    follower = Follower(replica)
    pauses = []
    for _ in range(8):
        follower.fetch.delay_partition(replica.topic_partition, follower.now_ms)
        assert follower.fetch.retry_ms is not None
        pauses.append(follower.fetch.retry_ms - follower.now_ms)
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000, 1000]


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_that_the_leader_lost_is_opened_anew(code: ErrorCode) -> None:
    follower = Follower(Replica(0))
    follower.open()
    follower.ask()
    assert follower.hear(**refusal(code)) == []
    assert follower.ask() == opening(0, session_id=SESSION)
    assert follower.hear(session_id=SESSION + 1) == []
    assert follower.ask() == request(session_id=SESSION + 1)


def test_both_requests_under_way_may_find_the_session_gone() -> None:
    follower = Follower(Replica(0))
    follower.open()
    follower.ask()
    follower.fetch.add_partition(Replica(1))
    follower.ask()
    lost = refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (follower.hear(**lost), follower.ask()) == ([], None)
    assert (follower.hear(**lost), follower.ask()) == ([], opening(0, 1, session_id=SESSION))


def test_without_a_session_every_request_names_everything_and_waits() -> None:
    follower = Follower(Replica(0))
    assert follower.ask() == opening(0)
    assert follower.hear(session_id=0) == []
    assert follower.ask() == opening(0, max_wait_ms=WAIT_MS)
    follower.fetch.add_partition(Replica(1))
    assert follower.ask() is None
    assert follower.hear(session_id=0) == []
    assert follower.ask() == opening(0, 1, max_wait_ms=WAIT_MS)


def test_a_refused_fetch_is_the_connections_trouble() -> None:
    follower = Follower(Replica(0))
    follower.ask()
    with pytest.raises(KafkaError) as refused:
        follower.hear(**refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_new_connection_opens_a_new_session() -> None:
    follower = Follower(Replica(0))
    follower.open()
    follower.ask()
    follower.fetch.connection_lost()
    assert follower.ask() == opening(0, session_id=SESSION)


def test_a_new_broker_epoch_is_told_of_every_replica() -> None:
    follower = Follower(Replica(0))
    follower.open()
    state = ReplicaState(replica_id=NODE, replica_epoch=EPOCH + 1)
    assert follower.ask(EPOCH + 1) == opening(0, session_id=SESSION, replica_state=state)


def test_a_throttled_replica_is_left_out_until_its_time_comes() -> None:
    slow = Replica(1)
    follower = Follower(Replica(0), slow)
    follower.throttled_until_ms[1] = 1100
    assert follower.ask() == opening(0)
    assert follower.hear(session_id=SESSION) == []
    assert follower.ask() == request()
    assert follower.fetch.retry_ms == 1100
    follower.now_ms = 1100
    assert follower.ask() == request(1, session_epoch=2)


def test_a_replica_that_has_spent_the_rate_is_taken_back_and_asked_for_again() -> None:
    slow = Replica(1)
    follower = Follower(Replica(0), slow)
    follower.open()
    follower.ask()
    (fetched,) = follower.hear(PartitionData(partition_index=1, records=b"abc"))
    assert fetched.replica is slow
    slow.grow(3)
    follower.fetch.position_changed(slow.topic_partition)
    follower.throttled_until_ms[1] = 2000
    assert follower.ask() == request(session_epoch=2, forgotten_topics_data=forgotten(1))
    follower.throttled_until_ms[1] = 2500  # others have spent more meanwhile
    follower.now_ms = 2000
    assert follower.hear() == []
    assert follower.ask() == request(session_epoch=3)
    assert follower.fetch.retry_ms == 2500
    follower.now_ms = 2500
    assert follower.ask() == request(1, offset=3, session_epoch=4)
