"""Refusals of the requests that change the cluster: every item answered with one error.

Owns: the shape of these answers, for the node that decides and for those that pass requests on.
Must not know why a request is refused.
"""

from sparklog.errors import KafkaError
from sparklog.wire.messages import alter_configs
from sparklog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
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
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


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


def refuse_replace_configs(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=tuple(
            alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )


def refuse_alter_configs(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )
