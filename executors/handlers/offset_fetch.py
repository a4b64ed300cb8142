"""OffsetFetch (key 9) v1-10: the committed offsets of groups.

The state machine of each group gets a request in the form of v8 about this group alone, with topics
by name, and responds in that form.  Before v8 a request names one group.  From v10 on topics are
named by id; a topic id that the image does not have is refused, and offsets of topics that the
image does not have are left out when all are asked for, as in Kafka.  A group that is named several
times is answered once.  The group id may be empty, as in Kafka.

Deviation: offsets of a topic that was deleted are never taken for those of another topic that was
created with its name.  Kafka tells them until their tombstones are written.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, ShardResult, results_of
from sparklog.metadata import ClusterImage
from sparklog.service.group_error_responses import offset_fetch_error_code, refuse_offset_fetch
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, are_slices, in_groups, in_slices
from sparklog.types import NO_OFFSET
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_ERROR_AT_TOP_FROM: Final = 2
#: Units of work for one group, for one topic, and for one partition.
_GROUP_UNITS: Final = 30
_TOPIC_UNITS: Final = 2
_PARTITION_UNITS: Final = 2


@dataclass(frozen=True, slots=True)
class _CheckedGroup:
    """A group of a request with topics by name, and the topics whose ids are not known."""

    asked: OffsetFetchRequestGroup
    unknown: tuple[OffsetFetchRequestTopics, ...] = ()


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(
        context: RequestContext, request: OffsetFetchRequest
    ) -> Slices[Awaitable[Slices[OffsetFetchResponse]]]:
        image, version = groups.image, context.version
        asked = request.groups
        if version < _GROUPS_FROM:
            asked = (OffsetFetchRequestGroup(group_id=request.group_id, topics=_later(request)),)
        checked: dict[str, _CheckedGroup] = {}
        for group in asked:
            if group.group_id not in checked:
                checked[group.group_id] = yield from _check(image, version, group)
        futures: list[ResponseFuture] = []
        spent = 0
        for each in checked.values():
            body = OffsetFetchRequest(groups=(each.asked,), require_stable=request.require_stable)
            number = groups.partition_of(each.asked.group_id)
            futures.append(groups.try_submit(context, number, body))
            spent += _GROUP_UNITS
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        return _answer(groups, version, request, tuple(checked.values()), futures)

    return ApiHandler(
        api_key=OffsetFetchRequest.API_KEY,
        min_version=OffsetFetchRequest.MIN_VERSION,
        max_version=OffsetFetchRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_offset_fetch,
    )


def _later(request: OffsetFetchRequest) -> tuple[OffsetFetchRequestTopics, ...] | None:
    """The topics of a request before v8 in the form of v8."""
    if request.topics is None:
        return None
    return tuple(
        [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    )


def _check(
    image: ClusterImage, version: int, group: OffsetFetchRequestGroup
) -> Slices[_CheckedGroup]:
    if group.topics is None:
        return _CheckedGroup(group)
    if version < _TOPIC_IDS_FROM:
        named = yield from in_slices(
            lambda topic: _with_present_id(image, topic), group.topics, _TOPIC_UNITS
        )
        return _CheckedGroup(replace(group, topics=tuple(named)))
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchRequestTopics] = []

    def look(topic: OffsetFetchRequestTopics) -> None:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(topic)
        else:
            known.append(replace(topic, name=found.name))

    yield from in_slices(look, group.topics, _TOPIC_UNITS)
    return _CheckedGroup(replace(group, topics=tuple(known)), tuple(unknown))


async def _answer(
    groups: GroupRequests,
    version: int,
    request: OffsetFetchRequest,
    checked: Sequence[_CheckedGroup],
    futures: Sequence[ResponseFuture],
) -> Slices[OffsetFetchResponse]:
    return _respond_all(groups.image, version, request, checked, await results_of(futures))


def _respond_all(
    image: ClusterImage,
    version: int,
    request: OffsetFetchRequest,
    checked: Sequence[_CheckedGroup],
    results: Sequence[ShardResult],
) -> Slices[OffsetFetchResponse]:
    answered = yield from _respond(image, version, checked, results)
    if version < _GROUPS_FROM:
        (group,) = answered
        return (yield from _respond_one(version, request, group))
    return OffsetFetchResponse(groups=answered)


def _group_of(checked: _CheckedGroup, result: ShardResult) -> Slices[OffsetFetchResponseGroup]:
    if isinstance(result, KafkaError):
        return OffsetFetchResponseGroup(
            group_id=checked.asked.group_id, error_code=offset_fetch_error_code(result)
        )
    response = (yield from result) if are_slices(result) else result
    assert isinstance(response, OffsetFetchResponse)
    (group,) = response.groups
    return group


def _respond(
    image: ClusterImage,
    version: int,
    checked: Sequence[_CheckedGroup],
    results: Sequence[ShardResult],
) -> Slices[tuple[OffsetFetchResponseGroup, ...]]:
    answered: list[OffsetFetchResponseGroup] = []
    by_id = version >= _TOPIC_IDS_FROM
    for each, result in zip(checked, results, strict=True):
        group = yield from _group_of(each, result)
        if not group.error_code and (by_id or each.asked.topics is None):
            named = yield from in_slices(
                lambda topic: _with_id(image, topic, by_id), group.topics, _TOPIC_UNITS
            )
            known = tuple([topic for topic in named if topic is not None])
            group = replace(group, topics=known + (yield from _unknown(each.unknown)))
        answered.append(group)
    return tuple(answered)


def _with_present_id(
    image: ClusterImage, topic: OffsetFetchRequestTopics
) -> OffsetFetchRequestTopics:
    """With the id of the present topic, so that offsets of an earlier topic are not found."""
    found = image.topic(topic.name)
    return topic if found is None else replace(topic, topic_id=found.topic_id)


def _with_id(
    image: ClusterImage, topic: OffsetFetchResponseTopics, is_named_by_id: bool
) -> OffsetFetchResponseTopics | None:
    """With the id of the present topic; None for a topic to leave out."""
    found = image.topic(topic.name)
    if found is None:
        return None if is_named_by_id else topic
    if topic.topic_id not in (None, found.topic_id):
        return None
    return replace(topic, topic_id=found.topic_id)


def _unknown(
    topics: Sequence[OffsetFetchRequestTopics],
) -> Slices[tuple[OffsetFetchResponseTopics, ...]]:
    return (
        yield from in_groups(
            topics,
            lambda topic: topic.partition_indexes,
            lambda _, number: OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=int(ErrorCode.UNKNOWN_TOPIC_ID),
            ),
            lambda topic, parts: OffsetFetchResponseTopics(
                topic_id=topic.topic_id, partitions=parts
            ),
            _PARTITION_UNITS,
        )
    )


def _respond_one(
    version: int, request: OffsetFetchRequest, group: OffsetFetchResponseGroup
) -> Slices[OffsetFetchResponse]:
    """The response before v8, about one group; v1 has no error code but those of partitions."""
    if version < _ERROR_AT_TOP_FROM and group.error_code:
        error = KafkaError(ErrorCode.of(group.error_code))
        return (yield from refuse_offset_fetch(request, error))
    topics = yield from in_groups(
        group.topics,
        lambda topic: topic.partitions,
        lambda _, part: OffsetFetchResponsePartition(
            partition_index=part.partition_index,
            committed_offset=part.committed_offset,
            committed_leader_epoch=part.committed_leader_epoch,
            metadata=part.metadata,
            error_code=part.error_code,
        ),
        lambda topic, parts: OffsetFetchResponseTopic(name=topic.name, partitions=parts),
        _PARTITION_UNITS,
    )
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)
