"""Metadata (key 3) v0-13: nodes, topics and leaders, from the cluster image.

Topics are named, from v12 also by id; null (in v0 an empty list) asks for all topics.  A missing
topic is created if both client and node allow it; until the image has the topic, the answer is
LEADER_NOT_AVAILABLE, which clients retry.  The control plane is node 0 and named as controller.
A leader whose connections have just ended is not reported as leader (``suspected_brokers``).
A topic that is named several times is answered once, as in Kafka.
Deviation: all operations are reported as authorized, because there are no ACLs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.slices import SLICE_UNITS, Slices, in_slices
from sparklog.types import CONTROLLER_NODE_ID, NO_NODE
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: Creates a topic with the cluster's defaults, or raises KafkaError.
CreateTopic = Callable[[str], Awaitable[None]]
#: Makes the response from the present image; topics that could not be created have an error.
MakeResponse = Callable[
    [RequestContext, MetadataRequest, dict[str, ErrorCode]], Slices[MetadataResponse]
]

#: All bits of ``AclOperation`` that apply to a topic, or to the cluster.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
_NOT_ASKED: Final = -(2**31)
_IDS_FROM: Final = 12
_FLEXIBLE_FROM: Final = MetadataRequest.FLEXIBLE_FROM
#: Most topics that one request may create.
_CREATE_MAX: Final = 1000
#: Units of work for one topic, and for one partition.
_TOPIC_UNITS: Final = 4
_PARTITION_UNITS: Final = 3


def handler(
    image: Callable[[], ClusterImage],
    create_topic: CreateTopic | None = None,
    suspected_brokers: SuspectedBrokers | None = None,
) -> ApiHandler:
    """``create_topic`` is None if missing topics are never created."""

    def answer(
        context: RequestContext, request: MetadataRequest, refusals: dict[str, ErrorCode]
    ) -> Slices[MetadataResponse]:
        return _response(_View(image(), suspected_brokers, request, refusals), context, request)

    def handle(context: RequestContext, request: MetadataRequest) -> Slices[Handled]:
        if context.version < _IDS_FROM:
            yield from _check_names(request)
        wait_ms = (
            suspected_brokers.answer_delay_ms(context.connection.state)
            if suspected_brokers is not None
            else 0
        )
        if create_topic is not None:
            names = yield from _missing_names(image(), context, request)
            if names:
                return _create_and_answer(answer, create_topic, names, context, request)
        if wait_ms:
            return _answer_later(wait_ms, answer, context, request)
        return (yield from answer(context, request, {}))

    return ApiHandler(
        api_key=MetadataRequest.API_KEY,
        min_version=MetadataRequest.MIN_VERSION,
        max_version=MetadataRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        rewrite_body=_rewrite_body,
        error_response=_error_response,
    )


def _rewrite_body(header: RequestHeader, body: memoryview) -> bytes | memoryview:
    """Repair librdkafka's request for all topics in flexible versions.

    librdkafka reserves four bytes for the number of topics and writes one byte for the null array,
    so the request has three bytes too many.  Brokers that ignore trailing bytes never noticed.
    """
    if header.api_version >= _FLEXIBLE_FROM and len(body) > 6 and body[:4] == bytes(4):
        return bytes(body[:1]) + bytes(body[4:])
    return body


async def _answer_later(
    wait_ms: int, answer: MakeResponse, context: RequestContext, request: MetadataRequest
) -> Slices[MetadataResponse]:
    await asyncio.sleep(wait_ms / 1000)
    return answer(context, request, {})


async def _create_and_answer(
    answer: MakeResponse,
    create_topic: CreateTopic,
    names: list[str],
    context: RequestContext,
    request: MetadataRequest,
) -> Slices[MetadataResponse]:
    refusals: dict[str, ErrorCode] = {}
    for name in names:
        refusals[name] = ErrorCode.LEADER_NOT_AVAILABLE  # until the image has it
        try:
            await create_topic(name)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS and not error.retriable:
                refusals[name] = error.code
    return answer(context, request, refusals)


def _check_names(request: MetadataRequest) -> Slices[None]:
    """Refuse topic ids before v12: the field exists from v10 on, but counts from v12 (KIP-516)."""
    yield from in_slices(_check_name, request.topics or (), 1)


def _check_name(topic: MetadataRequestTopic) -> None:
    if topic.name is None or topic.topic_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topics are named by id from v{_IDS_FROM} on")


def _missing_names(
    image: ClusterImage, context: RequestContext, request: MetadataRequest
) -> Slices[list[str]]:
    """The topics to create."""
    if not request.topics or not (request.allow_auto_topic_creation or context.version < 4):
        return []
    missing: dict[str, None] = {}

    def look(topic: MetadataRequestTopic) -> None:
        name = topic.name
        is_missing = topic.topic_id is None and name is not None and image.topic(name) is None
        if is_missing and name is not None and len(missing) < _CREATE_MAX:
            missing[name] = None

    yield from in_slices(look, request.topics, 1)
    return [name for name in missing if name not in INTERNAL_TOPICS and _is_legal(name)]


class _View:
    """The topics as one request sees them, from one image."""

    def __init__(
        self,
        image: ClusterImage,
        suspected_brokers: SuspectedBrokers | None,
        request: MetadataRequest,
        refusals: dict[str, ErrorCode],
    ) -> None:
        self.image = image
        self._refusals = refusals
        self._operations = (
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_ASKED
        )
        #: Clients must not be sent to a leader whose connections have just ended.
        self._suspected = {
            broker_id
            for broker_id, broker in (image.brokers.items() if suspected_brokers else ())
            if suspected_brokers is not None and suspected_brokers.is_suspected(broker)
        }

    def wanted(self, wanted: MetadataRequestTopic) -> "TopicImage | MetadataResponseTopic":
        """A topic that the request names, or the response with its error."""
        image = self.image
        if wanted.topic_id is not None:
            return image.topic_by_id(wanted.topic_id) or _refused(
                wanted, ErrorCode.UNKNOWN_TOPIC_ID
            )
        if wanted.name is None:
            return _refused(wanted, ErrorCode.INVALID_REQUEST)
        found = image.topic(wanted.name)
        if found is not None:
            return found
        if not _is_legal(wanted.name):
            return _refused(wanted, ErrorCode.INVALID_TOPIC_EXCEPTION)
        code = self._refusals.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _refused(wanted, code)

    def topic(
        self, topic: TopicImage, partitions: Iterable[MetadataResponsePartition]
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(partitions),
            topic_authorized_operations=self._operations,
        )

    def partition(self, entry: tuple[int, PartitionImage]) -> MetadataResponsePartition:
        """A partition by its number and state."""
        number, state = entry
        is_alive = self.image.is_alive
        led = is_alive(state.leader) and state.leader not in self._suspected
        return MetadataResponsePartition(
            error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=state.leader if led else NO_NODE,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            offline_replicas=tuple([r for r in state.replicas if not is_alive(r)]),
        )


def _response(
    view: _View, context: RequestContext, request: MetadataRequest
) -> Slices[MetadataResponse]:
    image = view.image
    wanted: Iterable[TopicImage | MetadataResponseTopic]
    if request.topics is None or (context.version == 0 and not request.topics):
        wanted = list(image.topics.values())
    else:
        wanted = yield from _wanted_topics(view, request.topics)
    topics = yield from _topics(view, wanted)
    return MetadataResponse(
        brokers=_nodes(image),
        cluster_id=image.cluster_id or None,
        controller_id=CONTROLLER_NODE_ID if image.controller.port else NO_NODE,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_ASKED
        ),
    )


def _wanted_topics(
    view: _View, named: Iterable[MetadataRequestTopic]
) -> "Slices[list[TopicImage | MetadataResponseTopic]]":
    """The requested topics, each once, in the order of the request."""
    seen: set[object] = set()
    found: list[TopicImage | MetadataResponseTopic] = []
    spent = 0
    for wanted in named:
        key = wanted.topic_id or wanted.name
        spent += 1
        if key not in seen:
            seen.add(key)
            found.append(view.wanted(wanted))
            spent += _TOPIC_UNITS
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    if spent:
        yield spent
    return found


def _topics(
    view: _View, wanted: "Iterable[TopicImage | MetadataResponseTopic]"
) -> Slices[tuple[MetadataResponseTopic, ...]]:
    topics: list[MetadataResponseTopic] = []
    spent = 0
    for each in wanted:
        if isinstance(each, MetadataResponseTopic):
            topics.append(each)
            spent += 1
        elif len(each.partitions) * _PARTITION_UNITS < SLICE_UNITS:
            topics.append(view.topic(each, map(view.partition, each.partitions.items())))
            spent += _TOPIC_UNITS + len(each.partitions) * _PARTITION_UNITS
        else:
            entries = list(each.partitions.items())
            partitions = yield from in_slices(view.partition, entries, _PARTITION_UNITS)
            topics.append(view.topic(each, partitions))
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    if spent:
        yield spent
    return tuple(topics)


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


def _refused(wanted: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    by_id = wanted.topic_id is not None
    return MetadataResponseTopic(
        error_code=code,
        name=None if by_id else wanted.name or "",
        topic_id=wanted.topic_id,
        is_internal=wanted.name in INTERNAL_TOPICS,
    )


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _error_response(request: MetadataRequest, error: KafkaError) -> Slices[MetadataResponse]:
    def refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
        )

    topics = yield from in_slices(refused, request.topics or (), 2)
    return MetadataResponse(topics=tuple(topics), error_code=error.code)
