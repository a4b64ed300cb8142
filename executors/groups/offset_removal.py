"""The end of committed offsets and of groups: deletion by request, expiry, deleted topics.

Owns: the decisions on OffsetDelete 0 and DeleteGroups 0 to 2, and Kafka's rules of expiry.  Must
not know how offsets are committed.  Kafka: ``OffsetMetadataManager``, ``OffsetExpirationCondition``
and ``GroupCoordinatorShard.cleanupGroupMetadata``.

A group may have a hundred thousand offsets, and a state machine a million.  So the work is divided
into turns (``removal_turn.py``), and other requests are decided in between.  A group whose deletion
is under way takes no commits and no members: they are to come again later.
"""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from itertools import chain
from typing import TypeAlias
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRequest, DeletedTopic
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.config import GroupConfig
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.member import WaitingRequest
from sparklog.executors.groups.record_schemas import (
    NO_TIMESTAMP,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import group_record, offset_record
from sparklog.executors.groups.removal_turn import RemovalTurn
from sparklog.executors.groups.texts import fits_record
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

#: Removal that yields whenever its turn is over.
_Steps: TypeAlias = Generator[None, None, None]


class OffsetRemoval:
    """Writes tombstones of offsets and groups.

    ``deleting`` are the groups whose deletion is under way, and ``waiting`` the requests for that.
    """

    __slots__ = (
        "_config",
        "_deleted_topics",
        "_groups",
        "_is_sweeping",
        "_jobs",
        "_turn",
        "deleting",
        "waiting",
    )

    def __init__(self, config: GroupConfig, groups: GroupStore) -> None:
        self._config = config
        self._groups = groups
        self._turn = RemovalTurn()
        #: What is under way; each has a turn, then the next one.
        self._jobs: deque[_Steps] = deque()
        self._is_sweeping = False
        #: Ids of deleted topics by name that no job has begun with.
        self._deleted_topics: dict[str, set[UUID | None]] = {}
        self.deleting: set[str] = set()
        self.waiting: set[int] = set()

    def remove(self, draft: DecisionDraft) -> bool:
        """Let the removal that is under way have a turn; return whether something is left."""
        draft.divisible = True
        turn = self._turn
        turn.begin(draft)
        for _ in range(len(self._jobs)):
            for _ in self._jobs[0]:
                self._jobs.rotate(-1)
                break
            else:
                self._jobs.popleft()
            if turn.is_over:
                break
        return bool(self._jobs)

    # -- by request

    def delete_offsets(
        self, request: CoordinatorRequest, body: OffsetDeleteRequest, draft: DecisionDraft
    ) -> None:
        """Delete offsets of topics that the group's members do not subscribe to.

        The handler divides a request about many partitions.
        """
        group = self._groups.find(body.group_id)
        code = ErrorCode.NONE
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            code = ErrorCode.NON_EMPTY_GROUP
        if group is None or code is not ErrorCode.NONE:
            draft.respond(request.request_id, OffsetDeleteResponse(error_code=code))
            return
        draft.divisible = True
        topics = tuple(self._delete_topic(group, topic, draft) for topic in body.topics)
        draft.respond(request.request_id, OffsetDeleteResponse(topics=topics))

    def _delete_topic(
        self, group: ClassicGroup, topic: OffsetDeleteRequestTopic, draft: DecisionDraft
    ) -> OffsetDeleteResponseTopic:
        is_subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        if not is_subscribed:
            offsets = self._groups.offsets
            for index in {each.partition_index: None for each in topic.partitions}:
                key = OffsetCommitKey(group=group.group_id, topic=topic.name, partition=index)
                if offsets.get(key) is not None or offsets.pending.is_unstable(key):
                    draft.write(offset_record(key, None))
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ),
        )

    def delete_groups(self, request: CoordinatorRequest, body: DeleteGroupsRequest) -> None:
        """Begin to delete groups; the request is answered when all of it is written."""
        waiting = WaitingRequest(request.request_id, request.version)
        self.waiting.add(request.request_id)
        self._jobs.append(self._delete_groups(waiting, body.groups_names))

    def _delete_groups(self, waiting: WaitingRequest, group_ids: Collection[str]) -> _Steps:
        turn = self._turn
        results: list[DeletableGroupResult] = []
        for group_id in group_ids:
            while group_id in turn.draft.changed_groups:
                yield  # its record of this event is not replayed yet
            code = self._refusal(group_id)
            if code is ErrorCode.NONE:
                yield from self._delete_group(group_id)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
            if turn.spend_look():
                yield
        self.waiting.discard(waiting.request_id)
        turn.draft.respond_to_waiting(waiting, DeleteGroupsResponse(results=tuple(results)))

    def _refusal(self, group_id: str) -> ErrorCode:
        if not fits_record(group_id):
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group_id in self.deleting:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def _delete_group(self, group_id: str) -> _Steps:
        turn = self._turn
        self.deleting.add(group_id)
        try:
            offsets = self._groups.offsets
            pending = [key for key in offsets.pending.keys_of(group_id) if offsets.get(key) is None]
            for key in chain(offsets.keys_of(group_id), pending):
                turn.draft.write(offset_record(key, None))
                if turn.spend_record():
                    yield
        finally:
            self.deleting.discard(group_id)
        turn.draft.write_group(group_id, group_record(group_id, None))

    # -- deleted topics

    def topics_deleted(self, deleted: Collection[DeletedTopic]) -> None:
        """Begin to end the offsets of topics that exist no longer, and none of later topics."""
        if deleted and not self._deleted_topics:
            self._jobs.append(self._end_topics())
        for name, topic_id in deleted:
            self._deleted_topics.setdefault(name, set()).add(topic_id)

    def _end_topics(self) -> _Steps:
        turn = self._turn
        deleted, self._deleted_topics = self._deleted_topics, {}
        for group_id in tuple(dict.fromkeys(self._groups.offsets.group_ids())):
            for key, value in self._offsets_of_topics(group_id, deleted):
                if value.topic_id is None or value.topic_id in deleted[key.topic]:
                    turn.draft.write(offset_record(key, None))
                    if turn.spend_record():
                        yield
            if turn.spend_look():
                yield

    def _offsets_of_topics(
        self, group_id: str, names: Collection[str]
    ) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """The offsets of a group that belong to topics of these names, pending ones included."""
        offsets = self._groups.offsets
        topics = offsets.of_group(group_id)
        common = [name for name in names if name in topics]
        for key in offsets.keys_of(group_id, common):
            value = offsets.get(key)
            if value is not None:
                yield key, value
        for key in offsets.pending.keys_of(group_id):
            if key.topic in names:
                yield from ((key, value) for value in offsets.pending.values_of(key))

    # -- by time

    def begin_sweep(self) -> None:
        """Begin to look for expired offsets, unless that is under way."""
        if not self._is_sweeping:
            self._is_sweeping = True
            self._jobs.append(self._sweep())

    def _sweep(self) -> _Steps:
        turn = self._turn
        try:
            for group_id in self._groups.group_ids():
                group = self._groups.find(group_id)
                if group is not None and group_id not in self.deleting:
                    yield from self._expire(group)
                if turn.spend_look():
                    yield
        finally:
            self._is_sweeping = False

    def _expire(self, group: ClassicGroup) -> _Steps:
        """End the expired offsets of a group, and an empty group without others."""
        turn, group_id, offsets = self._turn, group.group_id, self._groups.offsets
        if self._condition(group, turn.draft.now.wall_ms) is None:
            return
        #: Tombstones of this turn, which are not replayed yet.
        ended = 0
        for key in offsets.keys_of(group_id):
            is_expired = self._is_expired(group, key)
            if is_expired:
                turn.draft.write(offset_record(key, None))
                ended += 1
            if turn.spend_record() if is_expired else turn.spend_look():
                yield
                if group.state is GroupState.DEAD or group_id in self.deleting:
                    return
                ended = 0
        while group_id in turn.draft.changed_groups:
            yield  # its record of this event is not replayed yet
            ended = 0
        is_empty = group.state is GroupState.EMPTY and not group.pending_joins
        is_unused = ended == offsets.count_of(group_id) and not offsets.pending.has_group(group_id)
        if is_empty and is_unused and group_id not in self.deleting:
            turn.draft.write_group(group_id, group_record(group_id, None))

    def _is_expired(self, group: ClassicGroup, key: OffsetCommitKey) -> bool:
        value = self._groups.offsets.get(key)
        is_expired = self._condition(group, self._turn.draft.now.wall_ms)
        if value is None or is_expired is None or group.is_subscribed_to(key.topic):
            return False
        return is_expired(value) and not self._groups.offsets.pending.is_unstable(key)

    def _condition(
        self, group: ClassicGroup, wall_ms: int
    ) -> Callable[[OffsetCommitValue], bool] | None:
        """Tells whether an offset is expired; None if no offset of the group can expire now."""
        empty_since_ms = NO_TIMESTAMP
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                empty_since_ms = group.current_state_timestamp_ms
            elif group.state is not GroupState.STABLE or group.topics is None:
                return None
        retention_ms = self._config.retention_ms

        def is_expired(value: OffsetCommitValue) -> bool:
            if value.expire_timestamp != NO_TIMESTAMP:
                return wall_ms >= value.expire_timestamp
            is_known = empty_since_ms != NO_TIMESTAMP
            begin_ms = empty_since_ms if is_known else value.commit_timestamp
            return wall_ms - begin_ms >= retention_ms

        return is_expired
