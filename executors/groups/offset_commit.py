"""OffsetCommit and TxnOffsetCommit: which commits are accepted, and the records of them.

Owns: the decisions on OffsetCommit 2 to 10, and on TxnOffsetCommit, to which the handler gives the
form of an OffsetCommit of a transactional producer.  Must not know topics: the handlers set both
the name and the id of a topic, and the response has both.  Kafka: ``OffsetMetadataManager``.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.config import GroupConfig
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.rebalance import Rebalances
from sparklog.executors.groups.record_schemas import (
    NO_TIMESTAMP,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import offset_record
from sparklog.executors.groups.texts import fits_record
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

#: OffsetCommit versions from which an unknown group is GROUP_ID_NOT_FOUND.
_GROUP_NOT_FOUND_FROM = 9
_DEFAULT_RETENTION = -1


class OffsetCommits:
    """Decides on OffsetCommit requests."""

    __slots__ = ("_config", "_groups", "_rebalances")

    def __init__(self, config: GroupConfig, groups: GroupStore, rebalances: Rebalances) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances

    def commit(
        self, request: CoordinatorRequest, body: OffsetCommitRequest, draft: DecisionDraft
    ) -> None:
        """Write the offsets, except those whose metadata is too long."""
        try:
            if request.producer is None:
                self._check_member(body, request.version, draft.now.monotonic_ms)
            else:
                self._check_member_in_transaction(body)
        except KafkaError as error:
            draft.respond(request.request_id, commit_refusal(body, error.code))
            return
        topics = tuple(self._commit_topic(body, topic, draft) for topic in body.topics)
        draft.respond(request.request_id, OffsetCommitResponse(topics=topics))

    def _check_member(self, body: OffsetCommitRequest, version: int, now_ms: int) -> None:
        """A commit proves that its member lives, unless the member is to send SyncGroup.

        Consumers without a group's members commit with generation -1, to a group that is empty or
        does not exist.
        """
        group = self._groups.find(body.group_id)
        is_simple = body.generation_id_or_member_epoch < 0
        if group is None:
            if is_simple:
                return
            is_new = version >= _GROUP_NOT_FOUND_FROM
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
            )
        if is_simple and group.state is GroupState.EMPTY:
            return
        if is_simple and not body.member_id and body.group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._check_generation(group, body, now_ms)

    def _check_member_in_transaction(self, body: OffsetCommitRequest) -> None:
        """A transactional producer commits for a member, in any state of its group.

        Before version 3 a producer cannot name a member.  Such a commit, and one for a consumer
        without a group's members, has generation -1 and is accepted.  The commit proves nothing
        about the life of its member.
        """
        group = self._groups.find(body.group_id)
        is_simple = body.generation_id_or_member_epoch < 0
        if group is None:
            if not is_simple:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            return
        names_member = body.member_id or body.group_instance_id is not None
        if is_simple and (group.state is GroupState.EMPTY or not names_member):
            return
        group.require_member(body.member_id, body.group_instance_id)
        if body.generation_id_or_member_epoch != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def _check_generation(
        self, group: ClassicGroup, body: OffsetCommitRequest, now_ms: int
    ) -> None:
        member = group.require_member(body.member_id, body.group_instance_id)
        if body.generation_id_or_member_epoch != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.restart_session(member, now_ms)

    def _commit_topic(
        self, body: OffsetCommitRequest, topic: OffsetCommitRequestTopic, draft: DecisionDraft
    ) -> OffsetCommitResponseTopic:
        now_ms = draft.now.wall_ms
        has_retention = body.retention_time_ms != _DEFAULT_RETENTION
        expires_ms = now_ms + body.retention_time_ms if has_retention else NO_TIMESTAMP
        is_known = fits_record(topic.name)
        partitions = []
        for each in topic.partitions:
            code = ErrorCode.NONE if is_known else ErrorCode.INVALID_TOPIC_EXCEPTION
            if not self._accepts_metadata(each.committed_metadata or ""):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if code is ErrorCode.NONE:
                key = OffsetCommitKey(
                    group=body.group_id, topic=topic.name, partition=each.partition_index
                )
                draft.write(offset_record(key, _value(topic, each, now_ms, expires_ms)))
            partitions.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
        )

    def _accepts_metadata(self, metadata: str) -> bool:
        """Kafka compares the characters with ``offset.metadata.max.bytes``, so that is kept."""
        return len(metadata) <= self._config.metadata_bytes_max and fits_record(metadata)


def _value(
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    now_ms: int,
    expires_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expires_ms,
        topic_id=topic.topic_id,
    )


def commit_refusal(body: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The response of one error for all partitions."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )
