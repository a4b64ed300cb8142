"""Refusals of requests that both kinds of nodes take: every item answered with one error.

Owns: the shape of these answers, for the node that decides or leads and for those that pass
requests on or lead nothing.  Must not know why a request is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_OFFSET
from sparklog.wire.messages import alter_configs, incremental_alter_configs
from sparklog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from sparklog.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from sparklog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from sparklog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from sparklog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

#: The two requests that change settings: what they ask for differs, their answers only by name.
AnyAlterConfigsRequest: TypeAlias = IncrementalAlterConfigsRequest | AlterConfigsRequest
AnyAlterConfigsResponse: TypeAlias = IncrementalAlterConfigsResponse | AlterConfigsResponse
_ALTER_CONFIGS_ANSWERS: Final[Mapping[type, tuple[Any, Any]]] = {
    AlterConfigsRequest: (AlterConfigsResponse, alter_configs.AlterConfigsResourceResponse),
    IncrementalAlterConfigsRequest: (
        IncrementalAlterConfigsResponse,
        incremental_alter_configs.AlterConfigsResourceResponse,
    ),
}


def refuse_create_topics(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        )
    )


def topics_to_delete(request: DeleteTopicsRequest) -> tuple[DeleteTopicState, ...]:
    """The topics in the form of v6; earlier versions give names alone."""
    return request.topics + tuple(DeleteTopicState(name=name) for name in request.topic_names)


def refuse_delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=error.code,
                error_message=error.message,
            )
            for topic in topics_to_delete(request)
        )
    )


def refuse_create_partitions(
    request: CreatePartitionsRequest, error: KafkaError
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        )
    )


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
) -> AnyAlterConfigsResponse:
    return answer_alter_configs(request, [error] * len(request.resources))


def answer_alter_configs(
    request: AnyAlterConfigsRequest, refusals: Sequence[KafkaError | None]
) -> AnyAlterConfigsResponse:
    """What came of each resource, in their order: its refusal, or None."""
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


def refuse_elect_leaders(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """v0 has no error of the whole, so every partition carries it too."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    PartitionResult(
                        partition_id=number, error_code=error.code, error_message=error.message
                    )
                    for number in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
    )


def refuse_list_offsets(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=error.code
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def refuse_delete_records(
    request: DeleteRecordsRequest, error: KafkaError
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    DeleteRecordsPartitionResult(
                        partition_index=part.partition_index,
                        low_watermark=NO_OFFSET,
                        error_code=error.code,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def refuse_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    EpochEndOffset(partition=part.partition, error_code=error.code)
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
