"""What a follower asks of one leader, and what the answers mean for its replicas.

Owns: which replicas follow that leader, the fetch session they share (KIP-227), what of it has to
be told anew, and how long a replica that met an error waits.  Must not know logs, clocks, or how
requests travel.

One request is under way, and waits at the leader while nothing happens.  What comes up meanwhile (a
new replica, the end of a truncation) goes with a second request, which overtakes the first: the
leader answers that one with INVALID_FETCH_SESSION_EPOCH and keeps nothing waiting.  An answer
counts for a replica only if its log is still as it was when the leader was told of it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from sparklog.executors.partition import FetchPosition
from sparklog.types import TopicPartition
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

#: The first pause after an error; each further one in a row is twice as long.
BACKOFF_MS_MIN = 50
#: What a leader says of a session that it no longer has, or has otherwise.
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

#: Topic id and number: a topic that was deleted and made again is another one.
Key: TypeAlias = tuple[UUID, int]


class Replica(Protocol):
    """What is asked of a replica."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def high_watermark(self) -> int: ...

    def fetch_position(self) -> FetchPosition | None:
        """None while nothing can be fetched."""


ReplicaT = TypeVar("ReplicaT", bound=Replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(Generic[ReplicaT]):
    """The leader's records from ``position`` on, maybe none, and its marks."""

    replica: ReplicaT
    position: FetchPosition
    records: memoryview
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged(Generic[ReplicaT]):
    """The log has left the leader's history: of ``epoch`` at most what is below ``end_offset``."""

    replica: ReplicaT
    position: FetchPosition
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBehind(Generic[ReplicaT]):
    """The leader's log starts behind the end of this one."""

    replica: ReplicaT
    position: FetchPosition
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Generic[ReplicaT]):
    """The leader gives nothing now; the replica asks again later."""

    replica: ReplicaT
    code: int


Answered: TypeAlias = (
    Fetched[ReplicaT] | Diverged[ReplicaT] | FellBehind[ReplicaT] | Refused[ReplicaT]
)


@dataclass(slots=True)
class _Followed(Generic[ReplicaT]):
    replica: ReplicaT
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """What the leader was told of a replica, and in which request."""

    position: FetchPosition
    serial: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request under way; ``full``: it opens a session, or there is none."""

    serial: int
    session: int
    full: bool


class FollowerFetch(Generic[ReplicaT]):
    """The replicas of broker ``replica_id`` that follow one leader."""

    def __init__(
        self,
        replica_id: int,
        config: BrokerConfig,
        wait_ms: Callable[[ReplicaT, int], int] = lambda _replica, _now_ms: 0,
    ) -> None:
        """``wait_ms`` says how long a replica is not to be asked about, because of a throttle."""
        self._wait_ms = wait_ms
        self._replica_id = replica_id
        self._config = config
        self._broker_epoch = -1
        self._followed: dict[Key, _Followed[ReplicaT]] = {}
        self._keys: dict[TopicPartition, Key] = {}
        #: Whatever may have to be told, or taken back.
        self._changed: dict[Key, None] = {}
        #: Not to be asked about before.
        self._delayed: dict[Key, int] = {}
        self._told: dict[Key, _Told] = {}
        self._asked: deque[_Asked] = deque()
        self._serial = 0
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        #: One that the leader may still hold.
        self._ended_id = NO_SESSION
        #: Which of the sessions in a row it is; the leader's ids say nothing about order.
        self._session = 0
        self._has_sessions = True

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def retry_ms(self) -> int | None:
        """When the next delay ends."""
        return min(self._delayed.values(), default=None)

    # replicas

    def follow(self, replica: ReplicaT) -> None:
        """Ask for this replica, without delay; also when its leader's epoch is another one."""
        key = replica.topic_id, replica.topic_partition.partition
        if self._keys.get(replica.topic_partition) != key:
            self.leave(replica.topic_partition)
        self._keys[replica.topic_partition] = key
        self._followed[key] = _Followed(replica)
        self._delayed.pop(key, None)
        self._changed[key] = None

    def leave(self, topic_partition: TopicPartition) -> None:
        """Ask no more for a replica."""
        key = self._keys.pop(topic_partition, None)
        if key is not None:
            del self._followed[key]
            self._delayed.pop(key, None)
            self._changed[key] = None

    def touch(self, topic_partition: TopicPartition) -> None:
        """The position of a replica may be another one."""
        key = self._keys.get(topic_partition)
        if key is not None:
            self._changed[key] = None

    def delay(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Something went wrong with a replica: ask again after a while."""
        key = self._keys.get(topic_partition)
        if key is not None:
            self._delay(key, now_ms)

    # requests

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """What is to be sent now; None when nothing is to be said, or has to wait for an answer."""
        for key in [key for key, end_ms in self._delayed.items() if end_ms <= now_ms]:
            del self._delayed[key]
            self._changed[key] = None
        if broker_epoch != self._broker_epoch:
            # The leader is to hear it of every replica (KIP-903).
            self._broker_epoch = broker_epoch
            self._forget_session()
        self._hold_back(now_ms)
        if self._session_id != NO_SESSION:
            request = self._incremental_request()
            if request is not None or self._session_id != NO_SESSION:
                return request
        return None if self._asked else self._full_request()

    def _hold_back(self, now_ms: int) -> None:
        """Ask later for those that a throttle forbids now, among all that could be asked for."""
        for key in self._changed if self._session_id != NO_SESSION else self._followed:
            followed = self._followed.get(key)
            if followed is not None and key not in self._delayed:
                wait_ms = self._wait_ms(followed.replica, now_ms)
                if wait_ms > 0:
                    self._delayed[key] = now_ms + wait_ms

    def _full_request(self) -> FetchRequest | None:
        wanted = {key: p for key in self._followed if (p := self._position(key)) is not None}
        if not wanted:
            return None
        self._changed.clear()
        self._told.clear()
        ended_id, self._ended_id = self._ended_id, NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        return self._request(ended_id, wanted, (), full=True)

    def _incremental_request(self) -> FetchRequest | None:
        wanted: dict[Key, FetchPosition] = {}
        forgotten: list[Key] = []
        for key in self._changed:
            position, told = self._position(key), self._told.get(key)
            if position is None:
                if told is not None:
                    forgotten.append(key)
            elif told is None or told.position != position:
                wanted[key] = position
        if self._asked and not wanted:
            return None
        self._changed.clear()
        for key in forgotten:
            del self._told[key]
        if not wanted and not self._told:
            # A session of nothing would be answered at once, again and again.
            self._forget_session()
            return None
        return self._request(self._session_id, wanted, forgotten, full=False)

    def _request(
        self,
        session_id: int,
        wanted: dict[Key, FetchPosition],
        forgotten: Iterable[Key],
        *,
        full: bool,
    ) -> FetchRequest:
        config = self._config
        self._serial += 1
        self._asked.append(_Asked(self._serial, self._session, full))
        for key, position in wanted.items():
            self._told[key] = _Told(position, self._serial)
        epoch = self._session_epoch
        if not full:
            self._session_epoch = next_epoch(epoch)
        # A session is to be had at once, because only with one can a request be overtaken.
        waits = not full or not self._has_sessions
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._replica_id, replica_epoch=self._broker_epoch
            ),
            max_wait_ms=config.replica_fetch_wait_max_ms if waits else 0,
            min_bytes=1,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=epoch,
            topics=self._topics(wanted),
            forgotten_topics_data=_forgotten_topics(forgotten),
        )

    def _topics(self, wanted: dict[Key, FetchPosition]) -> tuple[FetchTopic, ...]:
        topics: dict[UUID, list[FetchPartition]] = {}
        for key, position in wanted.items():
            part = FetchPartition(
                partition=key[1],
                current_leader_epoch=position.current_leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=self._config.replica_fetch_max_bytes,
                high_watermark=self._followed[key].replica.high_watermark,
            )
            topics.setdefault(key[0], []).append(part)
        return tuple(
            FetchTopic(topic_id=topic_id, partitions=tuple(parts))
            for topic_id, parts in topics.items()
        )

    # answers

    def answered(self, response: FetchResponse, now_ms: int) -> list[Answered[ReplicaT]]:
        """The answer to the oldest request under way.

        Raises KafkaError for one that refuses the whole request; then ``lost`` is to be called.
        """
        asked = self._asked.popleft()
        if asked.session != self._session:
            return []
        if response.error_code:
            self._check(response.error_code, asked)
            return []
        if asked.full:
            self._session_id = response.session_id
            self._session_epoch = next_epoch(INITIAL_EPOCH)
            self._has_sessions = response.session_id != NO_SESSION
        told = []
        for topic in response.responses:
            assert topic.topic_id is not None
            for data in topic.partitions:
                each = self._judge((topic.topic_id, data.partition_index), data, asked, now_ms)
                if each is not None:
                    told.append(each)
        return told

    def lost(self) -> None:
        """The connection is gone, and with it whatever was under way."""
        self._asked.clear()
        self._has_sessions = True
        self._forget_session()

    def _forget_session(self) -> None:
        self._session += 1
        if self._session_id != NO_SESSION:
            self._ended_id, self._session_id = self._session_id, NO_SESSION
        self._told.clear()

    def _check(self, code: int, asked: _Asked) -> None:
        overtaken = code == ErrorCode.INVALID_FETCH_SESSION_EPOCH and bool(self._asked)
        if asked.full or code not in _SESSION_ERRORS:
            raise KafkaError(ErrorCode.of(code), "the leader refuses the whole fetch")
        if not overtaken:
            self._forget_session()

    def _judge(
        self, key: Key, data: PartitionData, asked: _Asked, now_ms: int
    ) -> Answered[ReplicaT] | None:
        followed, told = self._followed.get(key), self._told.get(key)
        if followed is None or told is None:
            return None
        replica, position = followed.replica, told.position
        if told.serial > asked.serial or replica.fetch_position() != position:
            # It is about a log that has changed since.
            self._changed[key] = None
            return None
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            return FellBehind(
                replica=replica, position=position, log_start_offset=data.log_start_offset
            )
        if data.error_code:
            self._delay(key, now_ms)
            return Refused(replica=replica, code=data.error_code)
        followed.failures = 0
        if data.diverging_epoch.epoch >= 0:
            return Diverged(
                replica=replica,
                position=position,
                epoch=data.diverging_epoch.epoch,
                end_offset=data.diverging_epoch.end_offset,
            )
        return Fetched(
            replica=replica,
            position=position,
            records=records_view(data.records),
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
        )

    def _position(self, key: Key) -> FetchPosition | None:
        followed = self._followed.get(key)
        if followed is None or key in self._delayed:
            return None
        return followed.replica.fetch_position()

    def _delay(self, key: Key, now_ms: int) -> None:
        followed = self._followed[key]
        pause_ms = BACKOFF_MS_MIN << min(followed.failures, 20)
        followed.failures += 1
        self._delayed[key] = now_ms + min(pause_ms, self._config.replica_fetch_backoff_ms)
        self._changed[key] = None


def _forgotten_topics(keys: Iterable[Key]) -> tuple[ForgottenTopic, ...]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return tuple(
        ForgottenTopic(topic_id=topic_id, partitions=tuple(numbers))
        for topic_id, numbers in topics.items()
    )
