"""OffsetFetch: the committed offsets of a group.

Owns: the responses to OffsetFetch.  Must not know topics: the handlers give every request the form
of version 8, with groups, and set the id of a topic beside its name where a request has it.  When
a client asks for all topics, a topic has the id that was committed with it, or None, and comes
again for each other id.

With ``require_stable`` an offset that an open transaction commits is UNSTABLE_OFFSET_COMMIT, so
that the client asks again (KIP-447).  Members are not compared: as in Kafka, that is for groups of
KIP-848.  An unknown group has no offsets, which is no error.

The offsets are taken at once, and a long response is made from them in slices.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.offset_store import OffsetStore, PartitionOffsets
from sparklog.executors.groups.record_schemas import OffsetCommitValue
from sparklog.slices import Slices, in_groups, run_through
from sparklog.types import NO_OFFSET
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from sparklog.wire.protocol.schema import Response

#: Offsets of a response that is made at once.
OFFSETS_AT_ONCE: Final = 500
_PARTITION_UNITS: Final = 3
_NO_COMMIT = OffsetCommitValue(offset=NO_OFFSET)


class TopicOffsets(NamedTuple):
    """The offsets of a topic as (partition, committed offset), and which partitions are unstable.

    ``unstable`` is empty if the client takes what is committed.
    """

    name: str
    topic_id: UUID | None
    partitions: tuple[tuple[int, OffsetCommitValue], ...]
    unstable: frozenset[int]


class OffsetFetches:
    """Answers OffsetFetch requests."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets

    def fetch(
        self, request: CoordinatorRequest, body: OffsetFetchRequest, draft: DecisionDraft
    ) -> None:
        found = {
            each.group_id: tuple(self._offsets_of(each, body.require_stable))
            for each in body.groups
        }
        count = sum(len(topic.partitions) for topics in found.values() for topic in topics)
        slices = _response(found)
        is_short = count <= OFFSETS_AT_ONCE
        draft.respond(request.request_id, run_through(slices) if is_short else slices)

    def _offsets_of(
        self, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> Iterator[TopicOffsets]:
        unstable: dict[str, set[int]] = {}
        if require_stable:
            for key in self._offsets.pending.keys_of(group.group_id):
                unstable.setdefault(key.topic, set()).add(key.partition)
        if group.topics is None:
            found = self._all(group.group_id)
        else:
            found = (
                self._some(group.group_id, each.name, each.topic_id, each.partition_indexes)
                for each in group.topics
            )
        for name, topic_id, partitions in found:
            yield TopicOffsets(name, topic_id, partitions, frozenset(unstable.get(name, ())))

    def _all(
        self, group_id: str
    ) -> Iterator[tuple[str, UUID | None, tuple[tuple[int, OffsetCommitValue], ...]]]:
        for name, partitions in self._offsets.of_group(group_id).items():
            for topic_id, some in _by_topic_id(partitions).items():
                yield name, topic_id, tuple(some.items())

    def _some(
        self, group_id: str, name: str, topic_id: UUID | None, partitions: tuple[int, ...]
    ) -> tuple[str, UUID | None, tuple[tuple[int, OffsetCommitValue], ...]]:
        committed = self._offsets.of_group(group_id).get(name, {})
        found = []
        for partition in partitions:
            value = committed.get(partition, _NO_COMMIT)
            if None not in (topic_id, value.topic_id) and topic_id != value.topic_id:
                value = _NO_COMMIT  # of an earlier topic of that name
            found.append((partition, value))
        return name, topic_id, tuple(found)


def _by_topic_id(partitions: PartitionOffsets) -> dict[UUID | None, PartitionOffsets]:
    """The offsets of a topic by its id; those without an id go with the others if they can."""
    ids = {value.topic_id for value in partitions.values()}
    if len(ids - {None}) < 2:
        return {max(ids, key=bool): partitions}
    divided: dict[UUID | None, dict[int, OffsetCommitValue]] = {}
    for partition, value in partitions.items():
        divided.setdefault(value.topic_id, {})[partition] = value
    return dict(divided)


def _response(found: dict[str, tuple[TopicOffsets, ...]]) -> Slices[Response]:
    groups: list[OffsetFetchResponseGroup] = []
    for group_id, offsets in found.items():
        topics = yield from in_groups(
            offsets,
            lambda topic: topic.partitions,
            _partition,
            lambda topic, parts: OffsetFetchResponseTopics(
                name=topic.name, topic_id=topic.topic_id, partitions=parts
            ),
            _PARTITION_UNITS,
        )
        groups.append(OffsetFetchResponseGroup(group_id=group_id, topics=topics))
    return OffsetFetchResponse(groups=tuple(groups))


def _partition(
    topic: TopicOffsets, offset: tuple[int, OffsetCommitValue]
) -> OffsetFetchResponsePartitions:
    partition, value = offset
    if partition in topic.unstable:
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
