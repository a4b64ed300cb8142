"""OffsetCommit (key 8) v2-10: store the committed offsets of a group.

Partitions that the image does not have are refused one by one, and the others go to the state
machine.  From v10 on topics are named by id (KIP-848); the state machine always sees both the name
and the id.  The group id may be empty, as in Kafka.

Deviation: a commit of many partitions is decided in parts (``request_parts.py``), so a failure may
leave some of its partitions committed.  The response tells which.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, results_of
from sparklog.executors.handlers.request_parts import parts_of
from sparklog.metadata import ClusterImage, TopicImage
from sparklog.service.group_error_responses import commit_error_code, refuse_offset_commit
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_groups
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM: Final = 10
#: Partitions of a commit that is decided on receipt, if all of them exist.
FEW_PARTITIONS: Final = 50
#: Units of work for the partitions of a part, and for one.
_PART_UNITS: Final = 5_000
_PARTITION_UNITS: Final = 2
_NONE: Final = int(ErrorCode.NONE)


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic of a request by name and id, and the error code of each of its partitions so far."""

    asked: OffsetCommitRequestTopic
    name: str
    topic_id: UUID | None
    codes: tuple[int, ...]

    def accepted(self) -> OffsetCommitRequestTopic | None:
        """The part for the state machine, if there is any."""
        parts = tuple(
            [p for p, code in zip(self.asked.partitions, self.codes, strict=True) if code == _NONE]
        )
        if not parts:
            return None
        return replace(self.asked, name=self.name, topic_id=self.topic_id, partitions=parts)


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(context: RequestContext, request: OffsetCommitRequest) -> Any:
        few = _few_existing(groups.image, context.version, request)
        if few is not None:
            return groups.submit(context, request.group_id, few)
        return handle_in_slices(context, request)

    def handle_in_slices(
        context: RequestContext, request: OffsetCommitRequest
    ) -> Slices[Awaitable[Slices[OffsetCommitResponse]] | OffsetCommitResponse]:
        checked = yield from check_topics(groups.image, context.version, request.topics)
        topics = tuple([found for topic in checked if (found := topic.accepted()) is not None])
        if not topics:
            return (yield from respond(checked, {}, _NONE))
        number = groups.partition_of(request.group_id)
        parts: list[tuple[OffsetCommitRequestTopic, ...]] = []
        futures: list[ResponseFuture] = []
        for part in parts_of(topics):
            # A topic that was deleted since the last part has no offsets any more.
            present = tuple([t for t in part if groups.image.topic_by_id(t.topic_id) is not None])
            if present:
                parts.append(present)
                body = replace(request, topics=present)
                futures.append(groups.try_submit(context, number, body))
            yield _PART_UNITS
        return _answer(parts, futures, checked, _unknown_code(context.version))

    return ApiHandler(
        api_key=OffsetCommitRequest.API_KEY,
        min_version=OffsetCommitRequest.MIN_VERSION,
        max_version=OffsetCommitRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_offset_commit,
    )


def _few_existing(
    image: ClusterImage, version: int, request: OffsetCommitRequest
) -> OffsetCommitRequest | None:
    """The request for the state machine, if its partitions are few and all of them exist.

    The response of the state machine is that of the whole request then.
    """
    topics = request.topics
    if not topics or sum([len(topic.partitions) for topic in topics]) > FEW_PARTITIONS:
        return None
    by_id = version >= _TOPIC_IDS_FROM
    known: list[OffsetCommitRequestTopic] = []
    for topic in topics:
        found = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        if found is None:
            return None
        for part in topic.partitions:
            if part.partition_index not in found.partitions:
                return None
        known.append(replace(topic, name=found.name, topic_id=found.topic_id))
    return replace(request, topics=tuple(known))


def check_topics(
    image: ClusterImage, version: int, topics: Sequence[OffsetCommitRequestTopic]
) -> Slices[tuple[CheckedTopic, ...]]:
    """Find the topics of a request of this version, and refuse partitions that do not exist."""
    by_id = version >= _TOPIC_IDS_FROM
    unknown = _unknown_code(version)

    def find(topic: OffsetCommitRequestTopic) -> TopicImage | None:
        return image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)

    def check(topic: OffsetCommitRequestTopic, part: OffsetCommitRequestPartition) -> int:
        found = find(topic)
        if found is None:
            return unknown
        known = part.partition_index in found.partitions
        return _NONE if known else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def make(topic: OffsetCommitRequestTopic, codes: tuple[int, ...]) -> CheckedTopic:
        found = find(topic)
        if found is None:
            return CheckedTopic(topic, topic.name, topic.topic_id, codes)
        return CheckedTopic(topic, found.name, found.topic_id, codes)

    return (
        yield from in_groups(topics, lambda topic: topic.partitions, check, make, _PARTITION_UNITS)
    )


def _unknown_code(version: int) -> int:
    """The code of a topic that does not exist."""
    by_id = version >= _TOPIC_IDS_FROM
    return int(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _answer(
    parts: Sequence[tuple[OffsetCommitRequestTopic, ...]],
    futures: Sequence[ResponseFuture],
    checked: Sequence[CheckedTopic],
    missing: int,
) -> Slices[OffsetCommitResponse]:
    return respond(checked, await committed_codes(parts, futures), missing)


async def committed_codes(
    parts: Sequence[tuple[OffsetCommitRequestTopic, ...]], futures: Sequence[ResponseFuture]
) -> dict[tuple[str, int], int]:
    """The error codes by topic and partition, once every part has its response."""
    committed: dict[tuple[str, int], int] = {}
    for part, result in zip(parts, await results_of(futures), strict=True):
        if isinstance(result, KafkaError):
            code = int(commit_error_code(result))
            committed |= {(t.name, p.partition_index): code for t in part for p in t.partitions}
        else:
            assert isinstance(result, OffsetCommitResponse)
            committed |= {
                (t.name, p.partition_index): p.error_code
                for t in result.topics
                for p in t.partitions
            }
    return committed


def respond(
    checked: Sequence[CheckedTopic],
    committed: dict[tuple[str, int], int],
    missing: int,
) -> Slices[OffsetCommitResponse]:
    """The response in the order of the request.

    ``committed`` has the codes of the partitions that the state machine was asked about, and
    ``missing`` is the code of the others that were accepted.
    """

    def responded(
        topic: CheckedTopic, part: tuple[OffsetCommitRequestPartition, int]
    ) -> OffsetCommitResponsePartition:
        asked, code = part
        number = asked.partition_index
        if code == _NONE:
            code = committed.get((topic.name, number), missing)
        return OffsetCommitResponsePartition(partition_index=number, error_code=code)

    topics = yield from in_groups(
        checked,
        lambda topic: zip(topic.asked.partitions, topic.codes, strict=True),
        responded,
        lambda topic, parts: OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.asked.topic_id, partitions=parts
        ),
        _PARTITION_UNITS,
    )
    return OffsetCommitResponse(topics=topics)
