"""The fetch session of the replicas that follow one leader (KIP-227, ``FetchSessionHandler``).

Owns: which replicas follow the leader, the partitions of the next fetch request, what a response
means for each replica, and the backoff of replicas after errors.  Must not know logs, clocks, or
how requests travel.

One request is in flight and waits at the leader for data.  News in the meantime (a new replica, the
end of a truncation) go with a second request, which overtakes the first: the leader answers the
first one with INVALID_FETCH_SESSION_EPOCH and delays nothing.  A response counts for a replica only
if the log of the replica is as it was when its fetch position was sent.
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

#: The first backoff after an error in ms; each further error in a row doubles it.
BACKOFF_MS_MIN = 50
#: Errors of a leader that does not have the fetch session, or has it in another state.
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

#: Topic id and partition; a topic that was deleted and created again has another id.
Key: TypeAlias = tuple[UUID, int]


class Replica(Protocol):
    """A replica, as far as a fetch session needs to know it."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def high_watermark(self) -> int: ...

    def fetch_position(self) -> FetchPosition | None:
        """The position of the next fetch; None while the replica must not fetch."""


ReplicaT = TypeVar("ReplicaT", bound=Replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(Generic[ReplicaT]):
    """The leader's records from ``position`` on, or none, and the leader's offsets."""

    replica: ReplicaT
    position: FetchPosition
    records: memoryview
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged(Generic[ReplicaT]):
    """The log diverges from the leader's, where the records of ``epoch`` end at ``end_offset``."""

    replica: ReplicaT
    position: FetchPosition
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetOutOfRange(Generic[ReplicaT]):
    """The fetch position is out of range: the leader's log starts beyond the end of this log."""

    replica: ReplicaT
    position: FetchPosition
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedToTieredStorage(Generic[ReplicaT]):
    """The leader has the records at the fetch position only in the bucket (KIP-405)."""

    replica: ReplicaT
    position: FetchPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Generic[ReplicaT]):
    """The leader answered with an error; the replica fetches again later."""

    replica: ReplicaT
    code: int


#: What ends with a truncation of the log.
Misplaced: TypeAlias = (
    Diverged[ReplicaT] | OffsetOutOfRange[ReplicaT] | MovedToTieredStorage[ReplicaT]
)
Answered: TypeAlias = Fetched[ReplicaT] | Misplaced[ReplicaT] | Refused[ReplicaT]


@dataclass(slots=True)
class _Followed(Generic[ReplicaT]):
    replica: ReplicaT
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _SentPosition:
    """A fetch position that the leader has, and the serial number of its request."""

    position: FetchPosition
    serial: int


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A request in flight.  A ``full`` request opens a session, or belongs to none."""

    serial: int
    session: int
    full: bool


class FetchSessionHandler(Generic[ReplicaT]):
    """The replicas of broker ``replica_id`` that follow one leader."""

    def __init__(
        self,
        replica_id: int,
        config: BrokerConfig,
        wait_ms: Callable[[ReplicaT, int], int] = lambda _replica, _now_ms: 0,
    ) -> None:
        """``wait_ms`` returns how long a throttle keeps a replica from fetching."""
        self._wait_ms = wait_ms
        self._replica_id = replica_id
        self._config = config
        self._broker_epoch = -1
        self._followed: dict[Key, _Followed[ReplicaT]] = {}
        self._keys: dict[TopicPartition, Key] = {}
        #: Partitions that the next request may have to add, update or forget.
        self._changed: dict[Key, None] = {}
        #: The end of each partition's backoff or throttle, in ms.
        self._delayed: dict[Key, int] = {}
        self._sent: dict[Key, _SentPosition] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._serial = 0
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        #: An ended session that the leader may still hold.
        self._ended_id = NO_SESSION
        #: The number of the current session; the leader's ids have no order.
        self._session = 0
        self._has_sessions = True

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def retry_ms(self) -> int | None:
        """When the next backoff or throttle ends, in ms; None without any."""
        return min(self._delayed.values(), default=None)

    # replicas

    def add_partition(self, replica: ReplicaT) -> None:
        """Fetch this replica without backoff; call it too when the leader epoch has changed."""
        key = replica.topic_id, replica.topic_partition.partition
        if self._keys.get(replica.topic_partition) != key:
            self.remove_partition(replica.topic_partition)
        self._keys[replica.topic_partition] = key
        self._followed[key] = _Followed(replica)
        self._delayed.pop(key, None)
        self._changed[key] = None

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a replica."""
        key = self._keys.pop(topic_partition, None)
        if key is not None:
            del self._followed[key]
            self._delayed.pop(key, None)
            self._changed[key] = None

    def position_changed(self, topic_partition: TopicPartition) -> None:
        """The fetch position of a replica may have changed."""
        key = self._keys.get(topic_partition)
        if key is not None:
            self._changed[key] = None

    def delay_partition(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Fetch a replica again after its backoff, because of an error."""
        key = self._keys.get(topic_partition)
        if key is not None:
            self._delay(key, now_ms)

    # requests

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """The request to send now; None without news, or while a response must come first."""
        for key in [key for key, end_ms in self._delayed.items() if end_ms <= now_ms]:
            del self._delayed[key]
            self._changed[key] = None
        if broker_epoch != self._broker_epoch:
            # The leader needs the new broker epoch for every replica (KIP-903).
            self._broker_epoch = broker_epoch
            self._forget_session()
        self._throttle(now_ms)
        if self._session_id != NO_SESSION:
            request = self._incremental_request()
            if request is not None or self._session_id != NO_SESSION:
                return request
        return None if self._in_flight else self._full_request()

    def _throttle(self, now_ms: int) -> None:
        """Delay the replicas that a throttle keeps from fetching now."""
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
        self._sent.clear()
        ended_id, self._ended_id = self._ended_id, NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        return self._request(ended_id, wanted, (), full=True)

    def _incremental_request(self) -> FetchRequest | None:
        wanted: dict[Key, FetchPosition] = {}
        forgotten: list[Key] = []
        for key in self._changed:
            position, sent = self._position(key), self._sent.get(key)
            if position is None:
                if sent is not None:
                    forgotten.append(key)
            elif sent is None or sent.position != position:
                wanted[key] = position
        if self._in_flight and not wanted:
            return None
        self._changed.clear()
        for key in forgotten:
            del self._sent[key]
        if not wanted and not self._sent:
            # The leader answers a session without partitions at once, every time.
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
        self._in_flight.append(_InFlight(self._serial, self._session, full))
        for key, position in wanted.items():
            self._sent[key] = _SentPosition(position, self._serial)
        epoch = self._session_epoch
        if not full:
            self._session_epoch = next_epoch(epoch)
        # Open a session without a wait, because requests can overtake only within a session.
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

    # responses

    def handle_response(self, response: FetchResponse, now_ms: int) -> list[Answered[ReplicaT]]:
        """Take the response to the oldest request in flight.

        Raises KafkaError when the response refuses the whole request; then call
        ``connection_lost``.
        """
        request = self._in_flight.popleft()
        if request.session != self._session:
            return []
        if response.error_code:
            self._check_error(response.error_code, request)
            return []
        if request.full:
            self._session_id = response.session_id
            self._session_epoch = next_epoch(INITIAL_EPOCH)
            self._has_sessions = response.session_id != NO_SESSION
        answers = []
        for topic in response.responses:
            assert topic.topic_id is not None
            for data in topic.partitions:
                each = self._judge((topic.topic_id, data.partition_index), data, request, now_ms)
                if each is not None:
                    answers.append(each)
        return answers

    def connection_lost(self) -> None:
        """The connection is closed, and with it all requests in flight."""
        self._in_flight.clear()
        self._has_sessions = True
        self._forget_session()

    def _forget_session(self) -> None:
        self._session += 1
        if self._session_id != NO_SESSION:
            self._ended_id, self._session_id = self._session_id, NO_SESSION
        self._sent.clear()

    def _check_error(self, code: int, request: _InFlight) -> None:
        overtaken = code == ErrorCode.INVALID_FETCH_SESSION_EPOCH and bool(self._in_flight)
        if request.full or code not in _SESSION_ERRORS:
            raise KafkaError(ErrorCode.of(code), "the leader refuses the whole fetch")
        if not overtaken:
            self._forget_session()

    def _judge(
        self, key: Key, data: PartitionData, request: _InFlight, now_ms: int
    ) -> Answered[ReplicaT] | None:
        followed, sent = self._followed.get(key), self._sent.get(key)
        if followed is None or sent is None:
            return None
        replica, position = followed.replica, sent.position
        if sent.serial > request.serial or replica.fetch_position() != position:
            # The log has changed since the request.
            self._changed[key] = None
            return None
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            return OffsetOutOfRange(
                replica=replica, position=position, log_start_offset=data.log_start_offset
            )
        if data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            # Until it is known where to start, the leader would say the same again and again.
            self._delay(key, now_ms)
            return MovedToTieredStorage(replica=replica, position=position)
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
