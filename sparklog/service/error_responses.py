"""The error responses of requests that brokers and the control plane both accept.

Owns: the responses that answer every item of a request with the same error.  They are used by the
node that handles a request, and by nodes that forward requests or lead no partition.  Must not know
why a request is refused.

Responses with an error for every item are made in slices.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.slices import Slices, in_groups, in_slices
from sparklog.types import NO_OFFSET
from sparklog.wire.protocol.messages import alter_configs, incremental_alter_configs
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from sparklog.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from sparklog.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from sparklog.wire.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

#: The two requests that change settings.  Their responses differ only in the names of the types.
AnyAlterConfigsRequest: TypeAlias = IncrementalAlterConfigsRequest | AlterConfigsRequest
AnyAlterConfigsResponse: TypeAlias = IncrementalAlterConfigsResponse | AlterConfigsResponse
_ALTER_CONFIGS_ANSWERS: Final[Mapping[type, tuple[Any, Any]]] = {
    AlterConfigsRequest: (AlterConfigsResponse, alter_configs.AlterConfigsResourceResponse),
    IncrementalAlterConfigsRequest: (
        IncrementalAlterConfigsResponse,
        incremental_alter_configs.AlterConfigsResourceResponse,
    ),
}


#: Units of work for refusing one item.
REFUSAL_UNITS: Final = 2


def refuse_create_topics(
    request: CreateTopicsRequest, error: KafkaError
) -> Slices[CreateTopicsResponse]:
    def refused(topic: CreatableTopic) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )

    topics = yield from in_slices(refused, request.topics, REFUSAL_UNITS)
    return CreateTopicsResponse(topics=tuple(topics))


def topics_to_delete(request: DeleteTopicsRequest) -> Slices[tuple[DeleteTopicState, ...]]:
    """The topics in the form of v6; earlier versions have names only."""
    named = yield from in_slices(_topic_named, request.topic_names, 1)
    return (*request.topics, *named)


def _topic_named(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def refuse_delete_topics(
    request: DeleteTopicsRequest, error: KafkaError
) -> Slices[DeleteTopicsResponse]:
    def refused(topic: DeleteTopicState) -> DeletableTopicResult:
        return DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=error.code,
            error_message=error.message,
        )

    topics = yield from topics_to_delete(request)
    responses = yield from in_slices(refused, topics, REFUSAL_UNITS)
    return DeleteTopicsResponse(responses=tuple(responses))


def refuse_create_partitions(
    request: CreatePartitionsRequest, error: KafkaError
) -> Slices[CreatePartitionsResponse]:
    def refused(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )

    results = yield from in_slices(refused, request.topics, REFUSAL_UNITS)
    return CreatePartitionsResponse(results=tuple(results))


def refuse_reassignments(
    _request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def refuse_listed_reassignments(
    _request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def refuse_unregister_broker(
    _request: UnregisterBrokerRequest, error: KafkaError
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


def refuse_alter_configs(
    request: AnyAlterConfigsRequest, error: KafkaError
) -> Slices[AnyAlterConfigsResponse]:
    response_type, result_type = _ALTER_CONFIGS_ANSWERS[type(request)]

    def refused(resource: Any) -> Any:
        return result_type(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    resources: Sequence[Any] = request.resources
    responses = yield from in_slices(refused, resources, REFUSAL_UNITS)
    response: AnyAlterConfigsResponse = response_type(responses=tuple(responses))
    return response


def answer_alter_configs(
    request: AnyAlterConfigsRequest, refusals: Sequence[KafkaError | None]
) -> AnyAlterConfigsResponse:
    """The response; ``refusals`` has the refusal (or None) of each resource, in their order."""
    response_type, result_type = _ALTER_CONFIGS_ANSWERS[type(request)]
    resources: Sequence[Any] = request.resources
    response: AnyAlterConfigsResponse = response_type(
        responses=tuple(
            result_type(
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, refusal in zip(resources, refusals, strict=True)
        )
    )
    return response


def refuse_elect_leaders(
    request: ElectLeadersRequest, error: KafkaError
) -> Slices[ElectLeadersResponse]:
    """The error for every partition as well, because v0 has no error code for the response."""
    results = yield from in_groups(
        request.topic_partitions or (),
        lambda topic: topic.partitions,
        lambda _, number: PartitionResult(
            partition_id=number, error_code=error.code, error_message=error.message
        ),
        lambda topic, parts: ReplicaElectionResult(topic=topic.topic, partition_result=parts),
        REFUSAL_UNITS,
    )
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def refuse_list_offsets(
    request: ListOffsetsRequest, error: KafkaError
) -> Slices[ListOffsetsResponse]:
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=error.code
        ),
        lambda topic, parts: ListOffsetsTopicResponse(name=topic.name, partitions=parts),
        REFUSAL_UNITS,
    )
    return ListOffsetsResponse(topics=topics)


def refuse_delete_records(
    request: DeleteRecordsRequest, error: KafkaError
) -> Slices[DeleteRecordsResponse]:
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=NO_OFFSET, error_code=error.code
        ),
        lambda topic, parts: DeleteRecordsTopicResult(name=topic.name, partitions=parts),
        REFUSAL_UNITS,
    )
    return DeleteRecordsResponse(topics=topics)


def refuse_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, error: KafkaError
) -> Slices[OffsetForLeaderEpochResponse]:
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: EpochEndOffset(partition=part.partition, error_code=error.code),
        lambda topic, parts: OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts),
        REFUSAL_UNITS,
    )
    return OffsetForLeaderEpochResponse(topics=topics)


def refuse_describe_producers(
    request: DescribeProducersRequest, error: KafkaError
) -> Slices[DescribeProducersResponse]:
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partition_indexes,
        lambda _, number: PartitionResponse(
            partition_index=number, error_code=error.code, error_message=error.message or None
        ),
        lambda topic, parts: TopicResponse(name=topic.name, partitions=parts),
        REFUSAL_UNITS,
    )
    return DescribeProducersResponse(topics=topics)
