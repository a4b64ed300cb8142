"""The responses to Fetch requests, and how they become bytes.

Owns: the messages; those with many partitions are made in slices.  Must not know how a
partition is read, or how a fetch waits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.fetch_context import ReadResult
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.partition import PartitionRead
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.slices import Slices, in_groups
from sparklog.storage_backends.base import Region
from sparklog.transport import EncodedResponse
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

#: Most partitions that one fetch handles at once; a fetch with more partitions works in slices.
PARTITIONS_AT_ONCE: Final = 200
NO_RECORDS: Final = b""
#: Units of refusing one partition.
_FAILURE_UNITS: Final = 3

#: Makes the response about one partition.  The endpoint of a leader that it names goes into the
#: mapping.
Describe = Callable[[ReadResult, dict[int, NodeEndpoint]], PartitionData]


class FetchResponseBuilder:
    """A response that is made partition by partition."""

    __slots__ = ("_describe", "_endpoints", "_topics")

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}

    def add(self, result: ReadResult) -> None:
        data = self._describe(result, self._endpoints)
        self._topics.setdefault((result.topic, result.part.topic_id), []).append(data)

    def response(self, session_id: int) -> FetchResponse:
        return self.build(session_id, self._topics, self._endpoints)

    @staticmethod
    def build(
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
    """A response without partitions: the client names all of them in its next request."""
    return FetchResponse(error_code=int(code))


def error_response(request: FetchRequest, error: KafkaError) -> Slices[FetchResponse]:
    """An error for the whole request.  Versions 4-6 have no field for it, so partitions get it."""
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
    """The response about a partition that cannot be read.

    As in Kafka, the list of aborted transactions is empty for a partition that is unknown here, and
    null for any other partition.
    """
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
    """Add the current leader to an error; the leader's endpoint goes into the mapping."""
    hint = leader_hint(replica_manager, topic, data.partition_index, data.error_code)
    if hint is None:
        return data
    endpoints[hint.node_id] = NodeEndpoint(
        node_id=hint.node_id, host=hint.endpoint.host, port=hint.endpoint.port
    )
    leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
    return replace(data, current_leader=leader)


def encode(
    header: RequestHeader, response: FetchResponse
) -> EncodedResponse | Slices[EncodedResponse]:
    version, correlation_id = header.api_version, header.correlation_id
    reply: Any
    topics = response.responses
    if sum([len(topic.partitions) for topic in topics]) + len(topics) > PARTITIONS_AT_ONCE:
        reply = _encoded_in_slices(version, correlation_id, response)
    else:
        reply = encode_fetch_response(version, correlation_id, response)
    encoded: EncodedResponse | Slices[EncodedResponse] = reply
    return encoded


def _encoded_in_slices(version: int, correlation_id: int, response: FetchResponse) -> Slices[Any]:
    try:
        return (yield from encode_fetch_response_in_slices(version, correlation_id, response))
    except GeneratorExit:  # the client is gone
        for topic in response.responses:
            for data in topic.partitions:
                release_records(data.records)
        raise


def release_records(records: Any) -> None:
    """Release the region of records that are not sent."""
    if records is not None and not isinstance(records, bytes | memoryview):
        region: Region = records
        region.release()
