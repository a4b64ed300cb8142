"""Fetch (key 1) v4-18: byte ranges of the logs, sent as they are.

A fetch that finds fewer than min_bytes waits up to max_wait_ms for a partition to grow.  Limits
hold per partition, per request and per broker (``fetch.max.bytes``), but the first partition with
data gives at least one whole batch (KIP-74).

With a session (KIP-227) a request names only what changed, the answer holds only what is news, and
only partitions in which something happened are looked at.  Requests with a replica id are members'
only: they tell the leader how far a follower has come, and are told where its log leaves the
leader's (KIP-595).  A follower waits for the high watermark too (KIP-1166), which is told with the
next records or, without any, a little later; and one out of range is
told where the log starts, which Kafka's ask for.  A consumer that says its rack is sent to the
replica there (KIP-392); followers answer it as leaders do.

Deviation: an error answers at once; Kafka lets a fetch wait beside topics that it does not know.

A fetch of more than ``PARTITIONS_AT_ONCE`` partitions looks at them in slices.  Of a partition that
is named several times the last word counts, as in Kafka.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.fetch_sessions import Awaited, FetchedPartition
from sparklog.executors.handlers.connection_waits import owner_of
from sparklog.executors.handlers.fetch_answer import (
    NO_RECORDS,
    PARTITIONS_AT_ONCE,
    FetchAnswer,
    aborted,
    encode,
    error_response,
    failed,
    session_error,
    with_hint,
)
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_scope import Look, Scope, scope_in_slices, scope_of
from sparklog.executors.partition import Partition
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager, closest_replica
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_slices
from sparklog.types import NO_BROKER_EPOCH, NO_NODE, Isolation, TopicPartition
from sparklog.wire.protocol.fetch import (
    MAX_VERSION,
    MIN_VERSION,
)
from sparklog.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)

#: Longest wait that is granted, whatever the client asks for.
WAIT_MS_MAX = 300_000
#: How long a high watermark waits for records to go with.  Under load there always are some, and
#: answers without any would be as many again.
HIGH_WATERMARK_WAIT_MS = 5
#: From here on topics are named by their ids (KIP-516).
_FIRST_ID_VERSION = 13
#: From here on consumers may be sent to followers, and may read from them (KIP-392).
_FIRST_FOLLOWER_VERSION = 11
#: Units of a look at one partition, beside its bytes, and of telling it.
_LOOK_UNITS = 20
_ANSWER_UNITS = 3
_BYTES_PER_UNIT_SHIFT = 12


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(context: RequestContext, request: FetchRequest) -> Any:
        replica = _replica(request)
        if replica.replica_id >= 0:
            _check_replica(replica_manager, context, replica)
        by_id = context.version >= _FIRST_ID_VERSION
        if _names_many(request):
            return _fetch_many(replica_manager, context, request, replica)
        try:
            scope = scope_of(replica_manager, request, replica.replica_id, by_id)
        except KafkaError as error:
            return session_error(error.code)
        fetch = _Fetch(replica_manager, request, replica, scope, version=context.version)
        if scope.size > PARTITIONS_AT_ONCE:
            return fetch.begin_in_slices(owner_of(replica_manager, context.connection))
        attempt = fetch.attempt()
        if request.max_wait_ms <= 0 or fetch.is_enough(attempt):
            return fetch.response(attempt)
        attempt.release()
        return fetch.park(attempt, owner_of(replica_manager, context.connection))

    return ApiHandler(
        api_key=FetchRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        encode=encode,
        error_response=error_response,
    )


def _names_many(request: FetchRequest) -> bool:
    topics, forgotten = request.topics, request.forgotten_topics_data
    named = sum([len(topic.partitions) for topic in topics]) + len(topics)
    if forgotten:
        named += sum([len(topic.partitions) for topic in forgotten]) + len(forgotten)
    return named > PARTITIONS_AT_ONCE


def _fetch_many(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: FetchRequest,
    replica: ReplicaState,
) -> Slices[Any]:
    """A fetch whose request names many partitions."""
    by_id = context.version >= _FIRST_ID_VERSION
    try:
        scope = yield from scope_in_slices(replica_manager, request, replica.replica_id, by_id)
    except KafkaError as error:
        return session_error(error.code)
    fetch = _Fetch(replica_manager, request, replica, scope, version=context.version)
    return (yield from fetch.begin_in_slices(owner_of(replica_manager, context.connection)))


def _replica(request: FetchRequest) -> ReplicaState:
    """v15 moved it into a tagged field."""
    state = request.replica_state
    return state if state.replica_id >= 0 else ReplicaState(replica_id=request.replica_id)


def _check_replica(
    replica_manager: ReplicaManager, context: RequestContext, replica: ReplicaState
) -> None:
    """Raises KafkaError unless a broker of the cluster asks, and its latest process (KIP-903)."""
    if not context.member:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only brokers of the cluster may fetch with a replica id",
        )
    broker = replica_manager.image.broker(replica.replica_id)
    if broker is not None and NO_BROKER_EPOCH < replica.replica_epoch < broker.broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {replica.replica_id} has registered again since epoch {replica.replica_epoch}",
        )


class _Fetch:
    """One fetch request, from the first look to the answer."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        request: FetchRequest,
        replica: ReplicaState,
        scope: Scope,
        *,
        version: int,
    ) -> None:
        self._answer: asyncio.Future[FetchResponse | Slices[FetchResponse]] | None = None
        self._replica_manager = replica_manager
        self._request = request
        self._replica = replica
        self._by_follower = replica.replica_id >= 0
        self._scope = scope
        self._by_id = version >= _FIRST_ID_VERSION
        self._only_leaders = version < _FIRST_FOLLOWER_VERSION
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._bytes_max = min(request.max_bytes, replica_manager.broker_config.fetch_max_bytes)
        # More than is ever answered must not be waited for.
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._missing = 0
        self._owner: Owner | None = None
        #: Whether it waits for records only as long as a high watermark may.
        self._hurries = False

    def attempt(self) -> FetchAttempt:
        """Look at every partition that may have something to tell."""
        found = FetchAttempt()
        left = self._bytes_max
        for part in self._scope.parts():
            look = self._look_at(part, left, found)
            found.looks.append(look)
            found.size += look.size
            found.urgent = found.urgent or look.urgent
            found.stale = found.stale or look.stale
            left = max(left - look.size, 0)
        return found

    def is_enough(self, attempt: FetchAttempt) -> bool:
        return attempt.urgent or attempt.size >= self._bytes_min or not self._scope.can_wait

    def response(self, attempt: FetchAttempt) -> FetchResponse:
        """The answer; its regions now belong to whoever sends it."""
        session_id, looks = self._scope.answer(attempt.looks, self._replica_manager.monotonic_ms())
        endpoints: dict[int, NodeEndpoint] = {}
        topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
        for look in looks:
            data = look.data
            if look.size or data.error_code:
                data = self._told(look, endpoints)
            topics.setdefault((look.topic, look.part.topic_id), []).append(data)
        return FetchAnswer.made(session_id, topics, endpoints)

    def _told(self, look: Look, endpoints: dict[int, NodeEndpoint]) -> PartitionData:
        """What the answer says about a partition."""
        if look.size:
            self._count(look)
        elif look.data.error_code:
            return with_hint(self._replica_manager, look.topic, look.data, endpoints)
        return look.data

    def _count(self, look: Look) -> None:
        replica_manager = self._replica_manager
        if self._by_follower:
            replica_manager.counters.replication_bytes_out += look.size
            partition = replica_manager.get(TopicPartition(look.topic, look.part.wanted.partition))
            if partition is not None:
                replica_manager.throttle.sent(partition, look.size, replica_manager.monotonic_ms())
        else:
            replica_manager.counters.bytes_out[look.topic] += look.size

    def begin_in_slices(self, owner: Owner) -> Slices[Any]:
        """The first look at many partitions, then an answer or its future.

        With a session, news is answered at once, be it less than min_bytes: the next request of the
        session is about fewer partitions.  What came to a partition after the look at it would wake
        nobody: it is found by a second look.
        """
        request, scope = self._request, self._scope
        session_id, answered, found = yield from self._look_in_slices()
        enough = found.urgent or found.size >= self._bytes_min or not scope.can_wait
        if request.max_wait_ms > 0 and not enough and not (session_id and answered):
            found.release()
            if found.size + found.missed >= self._bytes_min:
                return (yield from self.in_slices())
            return self.park(found, owner)
        return (yield from self._answer_in_slices(session_id, answered, found))

    def in_slices(self) -> Slices[FetchResponse]:
        """Look at many partitions, and answer with what there is."""
        session_id, answered, found = yield from self._look_in_slices()
        return (yield from self._answer_in_slices(session_id, answered, found))

    def _look_in_slices(self) -> Slices[tuple[int, list[Look], FetchAttempt]]:
        """The session's id, the looks that go into the answer, and all that was found."""
        found = FetchAttempt()
        answered: list[Look] = []
        left = self._bytes_max
        spent = 0
        delayed_operations = self._replica_manager.delayed_operations
        growth = (
            delayed_operations.follower_growth
            if self._by_follower
            else delayed_operations.reader_growth
        )
        #: What ``growth`` said when a partition was looked at.
        seen: list[int] = []
        growth.begin()
        try:
            session_id = yield from self._scope.begin_slices(self._replica_manager.monotonic_ms())
            for part in self._scope.parts():
                look = self._look_at(part, left, found)
                found.looks.append(look)
                seen.append(growth.of(look.topic_partition))
                if self._scope.answers(look):
                    answered.append(look)
                found.size += look.size
                found.urgent = found.urgent or look.urgent
                found.stale = found.stale or look.stale
                left = max(left - look.size, 0)
                spent += _LOOK_UNITS + (look.size >> _BYTES_PER_UNIT_SHIFT)
                if spent >= SLICE_UNITS:
                    yield spent
                    spent = 0
            yield spent
            if found.size < self._bytes_min:
                found.missed = sum(
                    [
                        growth.of(look.topic_partition) - size
                        for look, size in zip(found.looks, seen, strict=True)
                    ]
                )
                if self._scope.has_more(found.looks):
                    found.missed = max(found.missed, self._bytes_min)
        except GeneratorExit:  # nobody takes the answer any more
            found.release()
            raise
        finally:
            growth.end()
        return session_id, answered, found

    def _answer_in_slices(
        self, session_id: int, looks: Sequence[Look], found: FetchAttempt
    ) -> Slices[FetchResponse]:
        answer = FetchAnswer(self._told)
        try:
            yield from in_slices(answer.add, looks, _ANSWER_UNITS)
        except GeneratorExit:  # nobody takes the answer any more
            found.release()
            raise
        if self._scope.overtaken:
            found.release()
            return session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return answer.response(session_id)

    def park(
        self, attempt: FetchAttempt, owner: Owner
    ) -> "asyncio.Future[FetchResponse | Slices[FetchResponse]]":
        self._answer = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._wait(attempt)
        return self._answer

    def _wait(self, attempt: FetchAttempt) -> None:
        self._missing = self._bytes_min - attempt.size - attempt.missed
        self._hurries = attempt.stale
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        if attempt.stale:
            wait_ms = min(wait_ms, HIGH_WATERMARK_WAIT_MS)
        delayed_operations = self._replica_manager.delayed_operations
        purgatory = (
            delayed_operations.followers if self._by_follower else delayed_operations.readers
        )
        purgatory.park(self, self._scope.wait_for(attempt.looks), wait_ms / 1000, self._owner)

    def look(self, key: Awaited, size: int) -> bool:
        """A role that changed wakes with size 0 and is always worth a look."""
        del key
        assert self._answer is not None
        if self._scope.overtaken:
            self._finish(session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return True
        if 0 < size < self._missing:
            self._missing -= size
            return False
        if self._scope.size > PARTITIONS_AT_ONCE:
            self._finish(self.in_slices())
            return True
        attempt = self.attempt()
        if self._answer.done():
            # A follower's look can move the high watermark, which wakes the same fetch.
            attempt.release()
            return True
        if not self.is_enough(attempt):
            attempt.release()
            if attempt.stale and not self._hurries:
                self._wait(attempt)  # anew, and not for so long
                return True
            self._missing = self._bytes_min - attempt.size
            return False
        self._finish(self.response(attempt))
        return True

    def expire(self) -> None:
        if self._scope.size > PARTITIONS_AT_ONCE:
            self._finish(self.in_slices())
        else:
            self._finish(self.response(self.attempt()))

    def drop(self) -> None:
        assert self._answer is not None
        self._scope.wait_over()
        self._answer.cancel()

    def _finish(self, response: FetchResponse | Slices[FetchResponse]) -> None:
        assert self._answer is not None
        self._scope.wait_over()
        self._answer.set_result(response)

    def _look_at(self, part: FetchedPartition, left: int, found: FetchAttempt) -> Look:
        topic = part.topic
        try:
            if self._by_id:
                topic = self._replica_manager.topic_name(part.topic_id)
            return self._read(topic, part, left, found)
        except KafkaError as error:
            number = part.wanted.partition
            if topic:
                self._replica_manager.report_error(TopicPartition(topic, number), error)
            return Look(part, topic, self._refused(topic, number, error), urgent=True)

    def _read(self, topic: str, part: FetchedPartition, left: int, found: FetchAttempt) -> Look:
        replica_manager, wanted = self._replica_manager, part.wanted
        partition = replica_manager.find(topic, wanted.partition)
        self._check_follower(partition)
        closest = self._closest(partition, wanted)
        gets_records = closest == NO_NODE and not self._is_held_back(partition)
        read = partition.read(
            wanted.fetch_offset,
            max(min(wanted.partition_max_bytes, left), 0) if gets_records else 0,
            current_leader_epoch=wanted.current_leader_epoch,
            replica_id=self._replica.replica_id,
            last_fetched_epoch=wanted.last_fetched_epoch,
            isolation=self._isolation,
            min_one=not found.size and gets_records,
            only_leader=self._only_leaders,
        )
        records: Any = NO_RECORDS if read.records is None else found.hold(read.records)
        if self._by_follower and read.diverging is None:
            replica_manager.carry_out(
                partition.record_follower(
                    self._replica.replica_id,
                    wanted.fetch_offset,
                    wanted.log_start_offset,
                    broker_epoch=self._replica.replica_epoch,
                    now_ms=replica_manager.monotonic_ms(),
                )
            )
        data = PartitionData(
            partition_index=wanted.partition,
            # A follower's own fetch may have moved it, and a session tells of each change once.
            high_watermark=partition.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=aborted(read) if self._isolation else None,
            preferred_read_replica=closest,
            records=records,
        )
        if read.diverging is not None:
            epoch, end_offset = read.diverging
            data = replace(data, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset))
        elsewhere = read.diverging is not None or closest != NO_NODE
        return Look(
            part,
            topic,
            data,
            read.size,
            drained=not elsewhere and not read.size and wanted.fetch_offset >= read.end_offset,
            urgent=elsewhere,
            stale=self._by_follower and part.knows_less_than(data),
        )

    def _is_held_back(self, partition: Partition) -> bool:
        replica_manager, follower = self._replica_manager, self._replica.replica_id
        return self._by_follower and replica_manager.throttle.holds_back(
            partition, follower, replica_manager.monotonic_ms()
        )

    def _closest(self, partition: Partition, wanted: FetchPartition) -> int:
        """A replica that the consumer should rather read from; -1: none."""
        rack, replica_manager = self._request.rack_id, self._replica_manager
        if not rack or self._by_follower or self._only_leaders or not partition.is_leader:
            return NO_NODE
        ends = partition.followers_with(wanted.fetch_offset)
        return (
            closest_replica(rack, replica_manager.node_id, ends, replica_manager.image)
            if ends
            else NO_NODE
        )

    def _check_follower(self, partition: Partition) -> None:
        replica_id, state = self._replica.replica_id, partition.state
        hosts = state is None or not self._by_follower or replica_id in state.replicas
        if partition.is_leader and not hosts:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {partition.topic_partition}",
            )

    def _refused(self, topic: str, number: int, error: KafkaError) -> PartitionData:
        """A follower that is out of range learns where this log starts; it has to start there."""
        data = failed(number, error.code)
        if not self._by_follower or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return data
        partition = self._replica_manager.find(topic, number)
        return replace(data, log_start_offset=partition.log.log_start_offset)
