"""CreateTopics, DeleteTopics, CreatePartitions and IncrementalAlterConfigs (keys 19, 20, 37, 44).

A broker passes them to the controller as they came and its answer back.  While the controller is
away every item is refused with NOT_CONTROLLER, which clients retry.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.errors import KafkaError
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.transport import Reply
from sparklog.wire.codec import (
    RequestHeader,
    decode_request,
    encode_response,
    request_header_bytes,
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
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.schema import Request, Response

#: Request frame (header included) and its version -> response frame (header included).
Forward = Callable[[bytes, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forwarded:
    """The request as it came, checked, and as values."""

    frame: bytes
    request: Any


def handlers(forward: Forward) -> Sequence[ApiHandler]:
    """``forward`` raises KafkaError when the controller cannot be asked."""
    return tuple(
        _handler(forward, request_type, refuse)
        for request_type, refuse in (
            (CreateTopicsRequest, _refuse_create_topics),
            (DeleteTopicsRequest, _refuse_delete_topics),
            (CreatePartitionsRequest, _refuse_create_partitions),
            (IncrementalAlterConfigsRequest, _refuse_alter_configs),
        )
    )


def _handler(
    forward: Forward,
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Response],
) -> ApiHandler:
    def handle(context: RequestContext, forwarded: _Forwarded) -> Awaitable[bytes]:
        return forward(forwarded.frame, context.version)

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        handle=handle,
        decode=_decode,
        encode=_encode,
        error_response=lambda forwarded, error: refuse(forwarded.request, error),
    )


def _decode(header: RequestHeader, body: memoryview) -> _Forwarded:
    """Decoded here too: what cannot be decoded must not cost the link to the controller."""
    start = request_header_bytes(
        header.api_key, header.api_version, header.correlation_id, header.client_id
    )
    return _Forwarded(frame=start + bytes(body), request=decode_request(header, body))


def _encode(header: RequestHeader, response: bytes | Response) -> Reply:
    if isinstance(response, bytes):
        return (response,)
    return (encode_response(header.api_key, header.api_version, response, header.correlation_id),)


def _refuse_create_topics(request: CreateTopicsRequest, error: KafkaError) -> Response:
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(
                name=topic.name, error_code=int(error.code), error_message=error.message
            )
            for topic in request.topics
        )
    )


def _refuse_delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> Response:
    names = [(name, None) for name in request.topic_names]
    wanted = [*names, *((topic.name, topic.topic_id) for topic in request.topics)]
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=int(error.code),
                error_message=error.message,
            )
            for name, topic_id in wanted
        )
    )


def _refuse_create_partitions(request: CreatePartitionsRequest, error: KafkaError) -> Response:
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(
                name=topic.name, error_code=int(error.code), error_message=error.message
            )
            for topic in request.topics
        )
    )


def _refuse_alter_configs(request: IncrementalAlterConfigsRequest, error: KafkaError) -> Response:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=int(error.code),
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )
