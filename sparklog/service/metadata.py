"""Metadata (key 3) v0-13: nodes, topics and leaders, as the cluster image has them.

Topics by name (all: null, in v0 an empty list), from v12 also by id.  A topic that is missing is
created when client and node allow it; until the image has it the answer is LEADER_NOT_AVAILABLE,
which clients retry.  The control plane is node 0 and named as controller.
A leader whose connections have just ended is not named as one (``doubts``).
Deviation: authorized operations are all of them, because there are no access rules.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from sparklog.service.doubts import Doubts
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.types import CONTROLLER_NODE_ID, NO_NODE
from sparklog.wire.codec import RequestHeader, decode_request
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.schema import Request

#: Creates a topic with the cluster's defaults, or raises KafkaError.
CreateTopic = Callable[[str], Awaitable[None]]
#: As things are now; topics that could not be created have an error.
Answer = Callable[[RequestContext, MetadataRequest, dict[str, ErrorCode]], MetadataResponse]

#: Bits of ``AclOperation`` that a topic, or the cluster, has at all.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
_NOT_ASKED: Final = -(2**31)
_IDS_FROM: Final = 12
_FLEXIBLE_FROM: Final = MetadataRequest.FLEXIBLE_FROM
#: Topics that one request may create.
_CREATE_MAX: Final = 1000


def handler(
    image: Callable[[], ClusterImage],
    create_topic: CreateTopic | None = None,
    doubts: Doubts | None = None,
) -> ApiHandler:
    """``create_topic`` is None where missing topics are never created."""

    def answer(
        context: RequestContext, request: MetadataRequest, refusals: dict[str, ErrorCode]
    ) -> MetadataResponse:
        return _without_doubted(_response(image(), context, request, refusals), image(), doubts)

    def handle(context: RequestContext, request: MetadataRequest) -> Handled:
        if context.version < _IDS_FROM:
            _check_names(request)
        wait_ms = doubts.hesitation_ms(context.connection.state) if doubts is not None else 0
        names = _missing_names(image(), context, request) if create_topic is not None else []
        if names and create_topic is not None:
            return _create_and_answer(answer, create_topic, names, context, request)
        if wait_ms:
            return _answer_later(wait_ms, answer, context, request)
        return answer(context, request, {})

    return ApiHandler(
        api_key=MetadataRequest.API_KEY,
        min_version=MetadataRequest.MIN_VERSION,
        max_version=MetadataRequest.MAX_VERSION,
        handle=handle,
        decode=_decode,
        error_response=_error_response,
    )


def _decode(header: RequestHeader, body: memoryview) -> Request:
    """The request; librdkafka's "all topics" of flexible versions is repaired first.

    It reserves four bytes for the number of topics and writes the one byte of a null array, so
    three bytes too many follow; brokers that ignore trailing bytes never noticed.
    """
    if header.api_version >= _FLEXIBLE_FROM and len(body) > 6 and body[:4] == bytes(4):
        return decode_request(header, bytes(body[:1]) + bytes(body[4:]))
    return decode_request(header, body)


async def _answer_later(
    wait_ms: int, answer: Answer, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    await asyncio.sleep(wait_ms / 1000)
    return answer(context, request, {})


async def _create_and_answer(
    answer: Answer,
    create_topic: CreateTopic,
    names: list[str],
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse:
    refusals: dict[str, ErrorCode] = {}
    for name in names:
        refusals[name] = ErrorCode.LEADER_NOT_AVAILABLE  # until the image has it
        try:
            await create_topic(name)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS and not error.retriable:
                refusals[name] = error.code
    return answer(context, request, refusals)


def _check_names(request: MetadataRequest) -> None:
    """The fields are there from v10 on, but mean something only from v12 on (KIP-516)."""
    for topic in request.topics or ():
        if topic.name is None or topic.topic_id is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"topics are named by id from v{_IDS_FROM} on"
            )


def _missing_names(
    image: ClusterImage, context: RequestContext, request: MetadataRequest
) -> list[str]:
    """The topics to create."""
    if not request.topics or not (request.allow_auto_topic_creation or context.version < 4):
        return []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.topic_id is None)
    missing = [name for name in names if name is not None and image.topic(name) is None]
    return [
        name for name in missing[:_CREATE_MAX] if name not in INTERNAL_TOPICS and _is_legal(name)
    ]


def _response(
    image: ClusterImage,
    context: RequestContext,
    request: MetadataRequest,
    refusals: dict[str, ErrorCode],
) -> MetadataResponse:
    operations = request.include_topic_authorized_operations
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = tuple(_topic(image, topic, operations) for topic in image.topics.values())
    else:
        topics = tuple(
            _wanted_topic(image, wanted, refusals, operations)
            for wanted in dict.fromkeys(request.topics)
        )
    return MetadataResponse(
        brokers=_nodes(image),
        cluster_id=image.cluster_id or None,
        controller_id=CONTROLLER_NODE_ID if image.controller.port else NO_NODE,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_ASKED
        ),
    )


def _nodes(image: ClusterImage) -> tuple[MetadataResponseBroker, ...]:
    nodes = [
        MetadataResponseBroker(
            node_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack or None,
        )
        for broker in image.alive_brokers()
    ]
    controller = image.controller
    if controller.port:
        nodes.append(
            MetadataResponseBroker(
                node_id=CONTROLLER_NODE_ID, host=controller.host, port=controller.port
            )
        )
    return tuple(nodes)


def _wanted_topic(
    image: ClusterImage,
    wanted: MetadataRequestTopic,
    refusals: dict[str, ErrorCode],
    operations: bool,
) -> MetadataResponseTopic:
    if wanted.topic_id is not None:
        found = image.topic_by_id(wanted.topic_id)
        if found is None:
            return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic(image, found, operations)
    if wanted.name is None:
        return _refused(wanted, ErrorCode.INVALID_REQUEST)
    found = image.topic(wanted.name)
    if found is not None:
        return _topic(image, found, operations)
    if not _is_legal(wanted.name):
        return _refused(wanted, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _refused(wanted, refusals.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _refused(wanted: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    by_id = wanted.topic_id is not None
    return MetadataResponseTopic(
        error_code=code,
        name=None if by_id else wanted.name or "",
        topic_id=wanted.topic_id,
        is_internal=wanted.name in INTERNAL_TOPICS,
    )


def _topic(image: ClusterImage, topic: TopicImage, operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            _partition(image, number, state) for number, state in topic.partitions.items()
        ),
        topic_authorized_operations=TOPIC_OPERATIONS if operations else _NOT_ASKED,
    )


def _partition(
    image: ClusterImage, number: int, state: PartitionImage
) -> MetadataResponsePartition:
    led = image.is_alive(state.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=state.leader if led else NO_NODE,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=tuple(r for r in state.replicas if not image.is_alive(r)),
    )


def _without_doubted(
    response: MetadataResponse, image: ClusterImage, doubts: Doubts | None
) -> MetadataResponse:
    """Nobody is told to write to a leader whose connections have just ended."""
    if doubts is None or not doubts:
        return response
    doubted = {id_ for id_, broker in image.brokers.items() if doubts.about(broker)}
    topics = tuple(
        replace(topic, partitions=tuple(_unless(doubted, p) for p in topic.partitions))
        for topic in response.topics
    )
    return replace(response, topics=topics) if doubted else response


def _unless(doubted: set[int], partition: MetadataResponsePartition) -> MetadataResponsePartition:
    if partition.leader_id not in doubted:
        return partition
    return replace(partition, error_code=ErrorCode.LEADER_NOT_AVAILABLE, leader_id=NO_NODE)


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _error_response(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ),
        error_code=error.code,
    )
