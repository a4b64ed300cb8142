"""The bodies of OffsetCommit and OffsetFetch.

Owns: making requests from offsets and partitions, and results and errors from responses.  Must not
know the coordinator's address, nor when offsets are committed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.client.deadline import check, kafka_error
from sparklog.client.groups.consumer_protocol import NO_GENERATION
from sparklog.client.partition_results import unanswered
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_LEADER_EPOCH, TopicPartition, numbers_by_topic
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_Part = OffsetFetchResponsePartition | OffsetFetchResponsePartitions

#: The last versions of both APIs that name topics; later ones carry ids.
NAMES_UNTIL: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A committed offset: the next offset to read, and a text of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupIdentity:
    """The group, the member and the generation of a commit; empty without a subscription."""

    group_id: str
    member_id: str = ""
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


def commit_request(
    identity: GroupIdentity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, committed in sorted(offsets.items()):
        topics.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def check_commit(response: OffsetCommitResponse, group_id: str) -> None:
    """Check a response.  Raises KafkaError with the first error of a partition."""
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                tp = TopicPartition(topic.name, part.partition_index)
                raise _commit_error(part.error_code, group_id, tp)


def _commit_error(code: int, group_id: str, tp: TopicPartition) -> KafkaError:
    words = f"the group {group_id!r} did not take the offset of {tp}"
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        words += (
            ": the group has rebalanced, and other members may own the partitions now; "
            "call poll more often, or raise max_poll_interval_ms"
        )
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        words += ": the group rebalances; poll goes on with it, commit after that"
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        words += ": another consumer uses the same group_instance_id"
    return kafka_error(code, words)


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
) -> OffsetFetchRequest:
    """The OffsetFetch request; with ``require_stable`` open transactions are a retriable error."""
    by_name = numbers_by_topic(sorted(partitions))
    return OffsetFetchRequest(
        group_id=group_id,
        topics=tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in by_name.items()
        ),
        groups=(
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=tuple(
                    OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                    for name, numbers in by_name.items()
                ),
            ),
        ),
        require_stable=require_stable,
    )


def _committed(part: _Part) -> OffsetAndMetadata | None:
    if part.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        offset=part.committed_offset,
        metadata=part.metadata or "",
        leader_epoch=part.committed_leader_epoch,
    )


def committed_offsets(
    response: OffsetFetchResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """The committed offset of each partition, or None.  Raises KafkaError."""
    check(response.error_code, "the committed offsets were refused")
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = unanswered(partitions)
    for group in response.groups:
        check(group.error_code, f"the committed offsets of {group.group_id!r} were refused")
    parts: list[tuple[str, _Part]] = [
        *((topic.name, part) for topic in response.topics for part in topic.partitions),
        *(
            (topic.name, part)
            for group in response.groups
            for topic in group.topics
            for part in topic.partitions
        ),
    ]
    for name, part in parts:
        tp = TopicPartition(name, part.partition_index)
        check(part.error_code, f"the committed offset of {tp} was refused")
        found[tp] = _committed(part)
    results: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for tp, answer in found.items():
        if isinstance(answer, KafkaError):
            raise answer
        results[tp] = answer
    return results
