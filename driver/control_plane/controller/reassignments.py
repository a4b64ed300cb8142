"""Partition reassignments: AlterPartitionReassignments, and their cancellation (KIP-455).

Owns: which reassignments are granted, partition by partition, and the transitions that begin and
cancel one.  Must not know how replicas catch up, nor how reassignments are planned.

During a reassignment a partition has both the old and the new replicas.  The reassignment is
completed by ``complete_transition`` once the ISR allows it.  A new one of the same partition
replaces the former one; replicas that were still being added are dropped at once.  Deviation:
suppose that the dropped replicas are among those that hold every acknowledged record.  Then neither
a cancellation nor a new reassignment may leave fewer in-sync replicas than min.insync.replicas
requires (Kafka requires one).  Nor is a replica removed while the replicas that stay are offline.
"""

from collections import Counter
from dataclasses import replace

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.assignments import check_replicas
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import (
    Rules,
    Transition,
    complete_transition,
)
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


def alter_reassignments(
    image: ClusterImage,
    sessions: Sessions,
    config: BrokerConfig,
    request: AlterPartitionReassignmentsRequest,
) -> Decision:
    """Begin or cancel reassignments, partition by partition; all granted ones share one commit."""
    moves = _Moves(image, sessions, config, request)
    responses = tuple(
        ReassignableTopicResponse(name=topic.name, partitions=moves.answers(topic))
        for topic in request.topics
    )
    return Decision(
        records=moves.changes.records(),
        response=AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=responses,
        ),
        effects=moves.changes.effects(),
    )


def begin_reassignment(
    before: PartitionImage, targets: tuple[int, ...], rules: Rules
) -> Transition:
    """Begin to move the partition to the replicas ``targets``; the first is the preferred leader.

    Raises:
        KafkaError: the replicas of the former reassignment cannot be dropped.
    """
    originals = original_replicas(before)
    dropped = frozenset(before.adding) - frozenset(targets)
    after = _without(before, dropped, rules)
    removing = tuple(broker_id for broker_id in originals if broker_id not in targets)
    moving = replace(
        after,
        replicas=(*targets, *removing),
        adding=tuple(broker_id for broker_id in targets if broker_id not in originals),
        removing=removing,
    )
    return complete_transition(moving, rules, before=before)


def cancel_reassignment(before: PartitionImage, rules: Rules) -> Transition:
    """Cancel the reassignment: the partition keeps its original replicas.

    Raises:
        KafkaError: there is no reassignment, or its new replicas cannot be dropped.
    """
    if not before.adding and not before.removing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no replicas of it are moving")
    after = _without(before, frozenset(before.adding), rules)
    kept = replace(after, replicas=original_replicas(before), adding=(), removing=())
    return complete_transition(kept, rules, before=before)


def original_replicas(state: PartitionImage) -> tuple[int, ...]:
    """The replicas that the partition has after its reassignment is cancelled."""
    return tuple(broker_id for broker_id in state.replicas if broker_id not in state.adding)


def _without(before: PartitionImage, dropped: frozenset[int], rules: Rules) -> PartitionImage:
    """Drop replicas that were being added."""
    isr = _others(before.isr, dropped)
    complete = {*before.isr, *before.eligible, *(before.last_known if before.offline else ())}
    if dropped & complete and len(isr) < before.required_isr(rules.min_isr):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"without {sorted(dropped & complete)} only {sorted(isr)} would be in sync, and "
            "acknowledged records could be lost; wait until more of the former replicas are",
        )
    return replace(
        before,
        isr=isr,
        eligible=_others(before.eligible, dropped),
        last_known=_others(before.last_known, dropped),
    )


def _others(brokers: tuple[int, ...], dropped: frozenset[int]) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in brokers if broker_id not in dropped)


class _Moves:
    """The reassignments of one request."""

    def __init__(
        self,
        image: ClusterImage,
        sessions: Sessions,
        config: BrokerConfig,
        request: AlterPartitionReassignmentsRequest,
    ) -> None:
        self.changes = PartitionChanges(
            image,
            config,
            in_controlled_shutdown=sessions.in_controlled_shutdown,
            failed_on=sessions.failed_on,
        )
        self._image = image
        self._other_factors = request.allow_replication_factor_change
        self._times = Counter(
            (topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        )

    def answers(self, topic: ReassignableTopic) -> tuple[ReassignablePartitionResponse, ...]:
        """The results of one topic; a partition that is named twice is refused, in one result."""
        wanted = {part.partition_index: part.replicas for part in topic.partitions}
        return tuple(
            self._answer(TopicPartition(topic.name, number), replicas)
            for number, replicas in wanted.items()
        )

    def _answer(
        self, tp: TopicPartition, replicas: tuple[int, ...] | None
    ) -> ReassignablePartitionResponse:
        try:
            self._move(tp, replicas)
        except KafkaError as refusal:
            return ReassignablePartitionResponse(
                partition_index=tp.partition,
                error_code=refusal.code,
                error_message=refusal.message,
            )
        return ReassignablePartitionResponse(partition_index=tp.partition)

    def _move(self, tp: TopicPartition, replicas: tuple[int, ...] | None) -> None:
        before = self._image.partition(tp)
        if before is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        if self._times[tp.topic, tp.partition] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the partition twice")
        if replicas is None:
            self.changes.change(tp, cancel_reassignment)
            return
        targets = replicas
        self._check(tp, before, targets)
        self.changes.change(tp, lambda state, rules: begin_reassignment(state, targets, rules))

    def _check(self, tp: TopicPartition, before: PartitionImage, targets: tuple[int, ...]) -> None:
        check_replicas(self._image, tp.partition, targets, before.replicas)
        factor = len(original_replicas(before))
        if not self._other_factors and len(targets) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{tp} has {factor} replicas and would get {len(targets)}, which the request does "
                "not allow",
            )
