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
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.closest_replica import closest_replica
from sparklog.executors.fetch_session import FetchedPartition
from sparklog.executors.fetch_sessions import Awaited
from sparklog.executors.handlers.connection_waits import owner_of
from sparklog.executors.handlers.fetch_scope import Look, Scope, scope_of
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.partition import Partition
from sparklog.executors.partition_values import PartitionRead
from sparklog.executors.partitions import PartitionTable
from sparklog.executors.purgatory import Owner
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.storage_backends.base import Region
from sparklog.transport import Reply
from sparklog.types import NO_BROKER_EPOCH, NO_NODE, Isolation, TopicPartition
from sparklog.wire.codec import RequestHeader
from sparklog.wire.fetch import MAX_VERSION, MIN_VERSION, encode_fetch_response
from sparklog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
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
#: Regions in one answer; each may hold a file descriptor until it is sent.
REGIONS_MAX = 64
#: Cheaper to copy than to send as a region.
_COPIED_BYTES_MAX = 4096
_NO_RECORDS = b""


@dataclass(slots=True)
class _Attempt:
    """What one look at all partitions found; regions are released unless it is answered."""

    looks: list[Look] = field(default_factory=list)
    size: int = 0
    urgent: bool = False
    stale: bool = False
    regions: int = 0

    def hold(self, region: Region) -> Region | bytes:
        """The records as they go into the answer."""
        if region.size > _COPIED_BYTES_MAX and self.regions < REGIONS_MAX:
            self.regions += 1
            return region
        try:
            return region.read()
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            region.release()

    def release(self) -> None:
        for look in self.looks:
            _release(look.data.records)


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: FetchRequest) -> Any:
        replica = _replica(request)
        if replica.replica_id >= 0:
            _check_replica(table, context, replica)
        by_id = context.version >= _FIRST_ID_VERSION
        try:
            scope = scope_of(table, request, replica.replica_id, by_id)
        except KafkaError as error:
            return _session_error(error.code)
        fetch = _Fetch(table, request, replica, scope, version=context.version)
        attempt = fetch.attempt()
        if request.max_wait_ms <= 0 or fetch.is_enough(attempt):
            return fetch.response(attempt)
        attempt.release()
        return fetch.park(attempt, owner_of(table, context.connection))

    return ApiHandler(
        api_key=FetchRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        handle=handle,
        encode=_encode,
        error_response=_error_response,
    )


def _encode(header: RequestHeader, response: FetchResponse) -> Reply:
    parts: Any = encode_fetch_response(header.api_version, header.correlation_id, response)
    reply: Reply = parts
    return reply


def _error_response(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """v4-6 have no error of their own: it goes to every partition."""
    return FetchResponse(
        error_code=int(error.code),
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(_failed(part.partition, error.code) for part in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _session_error(code: ErrorCode) -> FetchResponse:
    """About no partition: the client sends all of them in its next request."""
    return FetchResponse(error_code=int(code))


def _replica(request: FetchRequest) -> ReplicaState:
    """v15 moved it into a tagged field."""
    state = request.replica_state
    return state if state.replica_id >= 0 else ReplicaState(replica_id=request.replica_id)


def _check_replica(table: PartitionTable, context: RequestContext, replica: ReplicaState) -> None:
    """Raises KafkaError unless a broker of the cluster asks, and its latest process (KIP-903)."""
    if not context.member:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only brokers of the cluster may fetch with a replica id",
        )
    broker = table.image.broker(replica.replica_id)
    if broker is not None and NO_BROKER_EPOCH < replica.replica_epoch < broker.broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {replica.replica_id} has registered again since epoch {replica.replica_epoch}",
        )


class _Fetch:
    """One fetch request, from the first look to the answer."""

    def __init__(
        self,
        table: PartitionTable,
        request: FetchRequest,
        replica: ReplicaState,
        scope: Scope,
        *,
        version: int,
    ) -> None:
        self._answer: asyncio.Future[FetchResponse] | None = None
        self._table = table
        self._request = request
        self._replica = replica
        self._by_follower = replica.replica_id >= 0
        self._scope = scope
        self._by_id = version >= _FIRST_ID_VERSION
        self._only_leaders = version < _FIRST_FOLLOWER_VERSION
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._bytes_max = min(request.max_bytes, table.broker_config.fetch_max_bytes)
        # More than is ever answered must not be waited for.
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._missing = 0
        self._owner: Owner | None = None
        #: Whether it waits for records only as long as a high watermark may.
        self._hurries = False

    def attempt(self) -> _Attempt:
        """Look at every partition that may have something to tell."""
        found = _Attempt()
        left = self._bytes_max
        for part in self._scope.parts():
            look = self._look_at(part, left, found)
            found.looks.append(look)
            found.size += look.size
            found.urgent = found.urgent or look.urgent
            found.stale = found.stale or look.stale
            left = max(left - look.size, 0)
        return found

    def is_enough(self, attempt: _Attempt) -> bool:
        return attempt.urgent or attempt.size >= self._bytes_min or not self._scope.can_wait

    def response(self, attempt: _Attempt) -> FetchResponse:
        """The answer; its regions now belong to whoever sends it."""
        session_id, looks = self._scope.answer(attempt.looks, self._table.monotonic_ms())
        endpoints: dict[int, NodeEndpoint] = {}
        topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
        for look in looks:
            data = look.data
            if look.size:
                self._count(look)
            elif data.error_code:
                data = self._with_hint(look.topic, data, endpoints)
            topics.setdefault((look.topic, look.part.topic_id), []).append(data)
        return FetchResponse(
            session_id=session_id,
            responses=tuple([
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ]),
            node_endpoints=tuple(endpoints.values()),
        )  # fmt: skip

    def _count(self, look: Look) -> None:
        table = self._table
        if self._by_follower:
            table.counters.replication_bytes_out += look.size
            partition = table.get(TopicPartition(look.topic, look.part.wanted.partition))
            if partition is not None:
                table.throttle.sent(partition, look.size, table.monotonic_ms())
        else:
            table.counters.bytes_out[look.topic] += look.size

    def park(self, attempt: _Attempt, owner: Owner) -> "asyncio.Future[FetchResponse]":
        self._answer = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._wait(attempt)
        return self._answer

    def _wait(self, attempt: _Attempt) -> None:
        self._missing = self._bytes_min - attempt.size
        self._hurries = attempt.stale
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        if attempt.stale:
            wait_ms = min(wait_ms, HIGH_WATERMARK_WAIT_MS)
        waits = self._table.waits
        purgatory = waits.followers if self._by_follower else waits.readers
        purgatory.park(self, self._scope.wait_for(attempt.looks), wait_ms / 1000, self._owner)

    def look(self, key: Awaited, size: int) -> bool:
        """A role that changed wakes with size 0 and is always worth a look."""
        del key
        assert self._answer is not None
        if self._scope.overtaken:
            self._finish(_session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return True
        if 0 < size < self._missing:
            self._missing -= size
            return False
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
        self._finish(self.response(self.attempt()))

    def drop(self) -> None:
        assert self._answer is not None
        self._scope.wait_over()
        self._answer.cancel()

    def _finish(self, response: FetchResponse) -> None:
        assert self._answer is not None
        self._scope.wait_over()
        self._answer.set_result(response)

    def _look_at(self, part: FetchedPartition, left: int, found: _Attempt) -> Look:
        topic = part.topic
        try:
            if self._by_id:
                topic = self._table.topic_name(part.topic_id)
            return self._read(topic, part, left, found)
        except KafkaError as error:
            number = part.wanted.partition
            if topic:
                self._table.hear(TopicPartition(topic, number), error)
            return Look(part, topic, self._refused(topic, number, error), urgent=True)

    def _read(self, topic: str, part: FetchedPartition, left: int, found: _Attempt) -> Look:
        table, wanted = self._table, part.wanted
        partition = table.find(topic, wanted.partition)
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
        records: Any = _NO_RECORDS if read.records is None else found.hold(read.records)
        if self._by_follower and read.diverging is None:
            table.carry_out(
                partition.record_follower(
                    self._replica.replica_id,
                    wanted.fetch_offset,
                    wanted.log_start_offset,
                    broker_epoch=self._replica.replica_epoch,
                    now_ms=table.monotonic_ms(),
                )
            )
        data = PartitionData(
            partition_index=wanted.partition,
            # A follower's own fetch may have moved it, and a session tells of each change once.
            high_watermark=partition.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=_aborted(read) if self._isolation else None,
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
        table, follower = self._table, self._replica.replica_id
        return self._by_follower and table.throttle.holds_back(
            partition, follower, table.monotonic_ms()
        )

    def _closest(self, partition: Partition, wanted: FetchPartition) -> int:
        """A replica that the consumer should rather read from; -1: none."""
        rack, table = self._request.rack_id, self._table
        if not rack or self._by_follower or self._only_leaders or not partition.is_leader:
            return NO_NODE
        ends = partition.followers_with(wanted.fetch_offset)
        return closest_replica(rack, table.node_id, ends, table.image) if ends else NO_NODE

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
        data = _failed(number, error.code)
        if not self._by_follower or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return data
        partition = self._table.find(topic, number)
        return replace(data, log_start_offset=partition.log.log_start_offset)

    def _with_hint(
        self, topic: str, data: PartitionData, endpoints: dict[int, NodeEndpoint]
    ) -> PartitionData:
        hint = leader_hint(self._table, topic, data.partition_index, data.error_code)
        if hint is None:
            return data
        endpoints[hint.node_id] = NodeEndpoint(
            node_id=hint.node_id, host=hint.endpoint.host, port=hint.endpoint.port
        )
        leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
        return replace(data, current_leader=leader)


def _aborted(read: PartitionRead) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in read.aborted
    )


def _failed(number: int, code: ErrorCode) -> PartitionData:
    """As Kafka: the list is empty where there is no partition, and null where there is one."""
    nowhere = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return PartitionData(
        partition_index=number,
        error_code=int(code),
        high_watermark=-1,
        aborted_transactions=() if nowhere else None,
        records=_NO_RECORDS,
    )


def _release(records: Any) -> None:
    if records is not None and not isinstance(records, bytes | memoryview):
        region: Region = records
        region.release()
