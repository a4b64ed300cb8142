"""Fetch (key 1) v4-18: byte ranges of the logs, sent as they are.

A fetch that finds fewer than min_bytes waits up to max_wait_ms for a partition to grow.  Limits
hold per partition, per request and per broker (``fetch.max.bytes``), but the first partition with
data gives at least one whole batch (KIP-74).

Deviations: fetch sessions are declined by answering session id 0 (KIP-227 allows it).  Requests
with a replica id are members' only: they tell the leader how far a follower has come.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.handlers.connection_waits import owner_of
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.partition_values import PartitionRead
from sparklog.executors.partitions import PartitionTable
from sparklog.executors.purgatory import Owner
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.storage_backends.base import Region
from sparklog.transport import Reply
from sparklog.types import Isolation, TopicPartition
from sparklog.wire.codec import RequestHeader
from sparklog.wire.fetch import MAX_VERSION, MIN_VERSION, encode_fetch_response
from sparklog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

#: Longest wait that is granted, whatever the client asks for.
WAIT_MS_MAX = 300_000
#: From here on topics are named by their ids (KIP-516).
_FIRST_ID_VERSION = 13
#: Regions in one answer; each may hold a file descriptor until it is sent.
REGIONS_MAX = 64
#: Cheaper to copy than to send as a region.
_COPIED_BYTES_MAX = 4096
_NO_RECORDS = b""


@dataclass(slots=True)
class _Attempt:
    """What one look at all partitions found; regions are released unless it is answered."""

    topics: list[tuple[FetchTopic, str, list[PartitionData]]]
    size: int = 0
    failed: bool = False
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
        for _, _, partitions in self.topics:
            for partition in partitions:
                _release(partition.records)


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: FetchRequest) -> Any:
        _check_session(request)
        replica_id = _replica_id(request)
        if replica_id >= 0 and not context.member:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "only brokers of the cluster may fetch with a replica id",
            )
        fetch = _Fetch(table, request, replica_id, by_id=context.version >= _FIRST_ID_VERSION)
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


def _check_session(request: FetchRequest) -> None:
    if request.session_id != 0:
        raise KafkaError(
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}"
        )
    if request.session_epoch > 0:
        raise KafkaError(
            ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"no fetch session epoch {request.session_epoch}"
        )


def _replica_id(request: FetchRequest) -> int:
    """v15 moved it into a tagged field."""
    return max(request.replica_id, request.replica_state.replica_id)


class _Fetch:
    """One fetch request, from the first look to the answer."""

    def __init__(
        self, table: PartitionTable, request: FetchRequest, replica_id: int, *, by_id: bool
    ) -> None:
        self._answer: asyncio.Future[FetchResponse] | None = None
        self._table = table
        self._request = request
        self._replica_id = replica_id
        self._by_id = by_id
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._bytes_max = min(request.max_bytes, table.broker_config.fetch_max_bytes)
        # More than is ever answered must not be waited for.
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._missing = 0

    def attempt(self) -> _Attempt:
        """Look at every partition in the order of the request."""
        found = _Attempt(topics=[])
        left = self._bytes_max
        for topic in self._request.topics:
            name, code = self._name_of(topic)
            partitions: list[PartitionData] = []
            found.topics.append((topic, name, partitions))
            for part in topic.partitions:
                if code is not None:
                    found.failed = True
                    partitions.append(_failed(part.partition, code))
                    continue
                data, size = self._read(name, part, left, found)
                found.size += size
                found.failed = found.failed or data.error_code != 0
                left = max(left - size, 0)
                partitions.append(data)
        return found

    def is_enough(self, attempt: _Attempt) -> bool:
        return attempt.failed or attempt.size >= self._bytes_min or not attempt.topics

    def response(self, attempt: _Attempt) -> FetchResponse:
        """The answer; its regions now belong to whoever sends it."""
        bytes_out = self._table.counters.bytes_out
        endpoints: dict[int, NodeEndpoint] = {}
        topics = []
        for topic, name, partitions in attempt.topics:
            size = sum(_size(data) for data in partitions)
            if size:
                bytes_out[name] += size
            if attempt.failed:
                partitions = [self._with_hint(name, data, endpoints) for data in partitions]
            topics.append(
                FetchableTopicResponse(
                    topic=name, topic_id=topic.topic_id, partitions=tuple(partitions)
                )
            )
        return FetchResponse(responses=tuple(topics), node_endpoints=tuple(endpoints.values()))

    def park(self, attempt: _Attempt, owner: Owner) -> "asyncio.Future[FetchResponse]":
        self._missing = self._bytes_min - attempt.size
        keys = [
            TopicPartition(name, part.partition)
            for topic, name, _ in attempt.topics
            for part in topic.partitions
        ]
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._answer = asyncio.get_running_loop().create_future()
        self._table.readers.park(self, keys, wait_ms / 1000, owner)
        return self._answer

    def look(self, key: TopicPartition, size: int) -> bool:
        """A role that changed wakes with size 0 and is always worth a look."""
        del key
        if 0 < size < self._missing:
            self._missing -= size
            return False
        attempt = self.attempt()
        if not self.is_enough(attempt):
            self._missing = self._bytes_min - attempt.size
            attempt.release()
            return False
        self._finish(attempt)
        return True

    def expire(self) -> None:
        self._finish(self.attempt())

    def drop(self) -> None:
        assert self._answer is not None
        self._answer.cancel()

    def _finish(self, attempt: _Attempt) -> None:
        assert self._answer is not None
        if self._answer.done():
            attempt.release()
        else:
            self._answer.set_result(self.response(attempt))

    def _name_of(self, topic: FetchTopic) -> tuple[str, ErrorCode | None]:
        if not self._by_id:
            return topic.topic, None
        try:
            return self._table.topic_name(topic.topic_id), None
        except KafkaError as error:
            return "", error.code

    def _read(
        self, topic: str, part: FetchPartition, left: int, found: _Attempt
    ) -> tuple[PartitionData, int]:
        table = self._table
        try:
            partition = table.find(topic, part.partition)
            read = partition.read(
                part.fetch_offset,
                max(min(part.partition_max_bytes, left), 0),
                current_leader_epoch=part.current_leader_epoch,
                replica_id=self._replica_id,
                isolation=self._isolation,
                min_one=not found.size,
            )
            records: Any = _NO_RECORDS if read.records is None else found.hold(read.records)
        except KafkaError as error:
            table.complaints.hear(TopicPartition(topic, part.partition), error)
            return _failed(part.partition, error.code), 0
        if self._replica_id >= 0:
            table.carry_out(partition.record_follower(self._replica_id, part.fetch_offset))
        data = PartitionData(
            partition_index=part.partition,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=_aborted(read) if self._isolation else None,
            records=records,
        )
        return data, read.size

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
    return PartitionData(
        partition_index=number, error_code=int(code), high_watermark=-1, records=_NO_RECORDS
    )


def _size(data: PartitionData) -> int:
    records = data.records
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | memoryview) else records.size


def _release(records: Any) -> None:
    if records is not None and not isinstance(records, bytes | memoryview):
        region: Region = records
        region.release()
