"""What a Fetch is answered with, and how the answer becomes bytes.

Owns: the messages, of few partitions at once and of many in slices.  Must not know how a partition
is read, nor how a fetch waits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.fetch_scope import Look
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.partition import PartitionRead
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.slices import Slices, in_groups
from sparklog.storage_backends.base import Region
from sparklog.transport import Reply
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.fetch import encode_fetch_response, encode_fetch_response_in_slices
from sparklog.wire.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

#: Partitions that one fetch looks at, names or is told at once; more are in slices.
PARTITIONS_AT_ONCE: Final = 200
NO_RECORDS: Final = b""
#: Units of refusing one partition.
_FAILURE_UNITS: Final = 3

#: What the answer says about a look; where it names a leader, the endpoint goes into the mapping.
Told = Callable[[Look, dict[int, NodeEndpoint]], PartitionData]


class FetchAnswer:
    """An answer, as its partitions become known."""

    __slots__ = ("_endpoints", "_told", "_topics")

    def __init__(self, told: Told) -> None:
        self._told = told
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}

    def add(self, look: Look) -> None:
        data = self._told(look, self._endpoints)
        self._topics.setdefault((look.topic, look.part.topic_id), []).append(data)

    def response(self, session_id: int) -> FetchResponse:
        return self.made(session_id, self._topics, self._endpoints)

    @staticmethod
    def made(
        session_id: int,
        topics: Mapping[tuple[str, UUID | None], Sequence[PartitionData]],
        endpoints: Mapping[int, NodeEndpoint],
    ) -> FetchResponse:
        return FetchResponse(
            session_id=session_id,
            responses=tuple([
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ]),
            node_endpoints=tuple(endpoints.values()),
        )  # fmt: skip


def session_error(code: ErrorCode) -> FetchResponse:
    """About no partition: the client sends all of them in its next request."""
    return FetchResponse(error_code=int(code))


def error_response(request: FetchRequest, error: KafkaError) -> Slices[FetchResponse]:
    """v4-6 have no error of their own: it goes to every partition."""
    responses = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: failed(part.partition, error.code),
        lambda topic, parts: FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=parts
        ),
        _FAILURE_UNITS,
    )
    return FetchResponse(error_code=int(error.code), responses=responses)


def failed(number: int, code: ErrorCode) -> PartitionData:
    """As Kafka: the list is empty where there is no partition, and null where there is one."""
    nowhere = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return PartitionData(
        partition_index=number,
        error_code=int(code),
        high_watermark=-1,
        aborted_transactions=() if nowhere else None,
        records=NO_RECORDS,
    )


def aborted(read: PartitionRead) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in read.aborted
    )


def with_hint(
    replica_manager: ReplicaManager,
    topic: str,
    data: PartitionData,
    endpoints: dict[int, NodeEndpoint],
) -> PartitionData:
    """An error with the leader that it is about; the leader's endpoint goes into the mapping."""
    hint = leader_hint(replica_manager, topic, data.partition_index, data.error_code)
    if hint is None:
        return data
    endpoints[hint.node_id] = NodeEndpoint(
        node_id=hint.node_id, host=hint.endpoint.host, port=hint.endpoint.port
    )
    leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
    return replace(data, current_leader=leader)


def encode(header: RequestHeader, response: FetchResponse) -> Reply | Slices[Reply]:
    version, correlation_id = header.api_version, header.correlation_id
    reply: Any
    topics = response.responses
    if sum([len(topic.partitions) for topic in topics]) + len(topics) > PARTITIONS_AT_ONCE:
        reply = _encoded_in_slices(version, correlation_id, response)
    else:
        reply = encode_fetch_response(version, correlation_id, response)
    encoded: Reply | Slices[Reply] = reply
    return encoded


def _encoded_in_slices(version: int, correlation_id: int, response: FetchResponse) -> Slices[Any]:
    try:
        return (yield from encode_fetch_response_in_slices(version, correlation_id, response))
    except GeneratorExit:  # nobody takes the answer any more
        for topic in response.responses:
            for data in topic.partitions:
                release_records(data.records)
        raise


def release_records(records: Any) -> None:
    """Let go of records that are not sent."""
    if records is not None and not isinstance(records, bytes | memoryview):
        region: Region = records
        region.release()
