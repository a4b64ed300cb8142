"""ISR changes: a leader proposes the ISR of its partitions with AlterPartition (KIP-497, 841, 903).

Owns: which proposals are granted, partition by partition.  Must not know when a follower counts as
caught up, nor the effects of an ISR change on leaders and reassignments.

A proposal names the partition's epochs, so that proposals of a replaced leader, or of a leader that
has missed a change, are refused.  It also names each member's broker epoch, so that a broker does
not join the ISR because of the progress of its former process.

A broker that is about to stop, or whose replica is offline, joins no ISR: the leader's state of
such a follower may show it as caught up for ever.  Other replicas in the same proposal may join.
"""

from collections.abc import Collection, Iterator

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import isr_changed
from sparklog.driver.control_plane.controller.sessions import Sessions, check_broker_epoch
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage
from sparklog.types import NO_BROKER_EPOCH, TopicPartition
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)


def alter_partitions(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, request: AlterPartitionRequest
) -> Decision:
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    changes = PartitionChanges(
        image,
        config,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    proposals = _Proposals(image, sessions, changes, request.broker_id)
    topics = tuple(
        ResponseTopicData(topic_id=topic.topic_id, partitions=tuple(proposals.answers(topic)))
        for topic in request.topics
    )
    return Decision(
        records=changes.records(),
        response=AlterPartitionResponse(topics=topics),
        effects=changes.effects(),
    )


class _Proposals:
    """The proposals of one leader; each is decided on the state after those before it."""

    def __init__(
        self, image: ClusterImage, sessions: Sessions, changes: PartitionChanges, leader: int
    ) -> None:
        self._image = image
        self._sessions = sessions
        self._changes = changes
        self._leader = leader

    def answers(self, data: TopicData) -> Iterator[ResponsePartitionData]:
        topic = self._image.topic_by_id(data.topic_id)
        for proposal in data.partitions:
            number = proposal.partition_index
            try:
                state = self._decide(topic, proposal)
            except KafkaError as refusal:
                yield ResponsePartitionData(partition_index=number, error_code=refusal.code)
            else:
                yield ResponsePartitionData(
                    partition_index=number,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    partition_epoch=state.partition_epoch,
                )

    def _decide(self, topic: TopicImage | None, proposal: PartitionData) -> PartitionImage:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if proposal.partition_index not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        tp = TopicPartition(topic.name, proposal.partition_index)
        before = self._changes.state(tp)
        self._check_epochs(before, proposal)
        members = _members(proposal)
        self._check_members(before, members)
        isr = self._admitted(topic, proposal.partition_index, before, members)
        after = self._changes.change(tp, lambda state, rules: isr_changed(state, isr, rules))
        if after.leader_epoch != before.leader_epoch:  # this has completed a reassignment
            raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
        return after

    def _check_epochs(self, state: PartitionImage, proposal: PartitionData) -> None:
        if (
            proposal.leader_epoch > state.leader_epoch
            or proposal.partition_epoch > state.partition_epoch
        ):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)  # the leader has seen a later controller
        if proposal.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if state.leader != self._leader or proposal.leader_recovery_state:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if proposal.partition_epoch < state.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)

    def _check_members(self, state: PartitionImage, members: dict[int, int]) -> None:
        if not members.keys() <= set(state.replicas) or self._leader not in members:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        for broker_id, broker_epoch in members.items():
            broker = self._image.broker(broker_id)
            if (
                broker is None
                or broker.fenced
                or broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch)
            ):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    def _admitted(
        self, topic: TopicImage, number: int, state: PartitionImage, members: Collection[int]
    ) -> tuple[int, ...]:
        """The proposed members without those that may not join.

        Raises:
            KafkaError: INELIGIBLE_REPLICA if no other change is left.
        """
        admitted = tuple(
            broker_id
            for broker_id in members
            if broker_id in state.isr or self._sessions.may_join(broker_id, topic.topic_id, number)
        )
        if len(admitted) < len(members) and set(admitted) == set(state.isr):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
        return admitted


def _members(proposal: PartitionData) -> dict[int, int]:
    """The broker epoch of each proposed member, by broker id; v2 names ids only."""
    with_epochs = [
        (member.broker_id, member.broker_epoch) for member in proposal.new_isr_with_epochs
    ]
    members = dict(with_epochs or [(broker_id, NO_BROKER_EPOCH) for broker_id in proposal.new_isr])
    if len(members) < len(with_epochs or proposal.new_isr):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a replica is named twice")
    return members
