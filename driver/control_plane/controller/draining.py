"""Brokers on their way out: their replicas go to others, then their ids are forgotten.

Owns: what draining brokers lose next, and who may be unregistered.  Must not know how replicas
catch up, nor who stops the processes.

A limited number of partitions move at a time, those aside that go to where nobody is; the rest
follow as those arrive, driven by the clock, so that draining survives whoever asked for it, and the
controller itself.

A broker that is away for ``broker.replacement.delay.ms`` is not waited for any longer: what was to
go there goes elsewhere, unless it holds records that others lack.  One that stays a replica and is
away holds up nothing while enough others are in sync.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.assignments import PlacementDraft, targets
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.reassignments import begin_reassignment
from sparklog.driver.control_plane.controller.sessions import Sessions, require_broker
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    BrokerDraining,
    BrokerRemoved,
    ClusterImage,
    PartitionChanged,
    PartitionImage,
)
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from sparklog.wire.protocol.private import DrainBrokersRequest, DrainBrokersResponse, DrainedBroker

#: Partitions that move away from draining brokers at a time.
MOVES_MAX = 100


@dataclass(slots=True)
class Absences:
    """Since when brokers are away, as far as this controller has seen."""

    since_ms: dict[int, int] = field(default_factory=dict)

    def update(self, image: ClusterImage, now_ms: int) -> None:
        """At every tick."""
        away = [broker.broker_id for broker in image.brokers.values() if broker.fenced]
        self.since_ms = {broker_id: self.since_ms.get(broker_id, now_ms) for broker_id in away}

    def at_least(self, delay_ms: int, now_ms: int) -> frozenset[int]:
        return frozenset(
            b for b, since_ms in self.since_ms.items() if now_ms - since_ms >= delay_ms
        )


def drain_brokers(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, request: DrainBrokersRequest
) -> Decision:
    """Without ids, tell of those that are draining.  Raises KafkaError when the other brokers could
    not hold what these have."""
    wanted = request.broker_ids or (() if request.cancel else sorted(_draining(image)))
    brokers = [require_broker(image, broker_id) for broker_id in dict.fromkeys(wanted)]
    if request.broker_ids and not request.cancel:
        _check_others_suffice(image, {broker.broker_id for broker in brokers})
    changed = tuple(
        BrokerDraining(broker_id=broker.broker_id, draining=not request.cancel)
        for broker in brokers
        if broker.draining == request.cancel
    )
    leaving = _draining(image) | {broker.broker_id for broker in brokers}
    moves = _Moves(image, sessions, config, leaving)
    return Decision(
        records=changed,
        response=DrainBrokersResponse(
            brokers=tuple(moves.progress(broker.broker_id) for broker in brokers)
        ),
    )


def continue_draining(
    image: ClusterImage,
    sessions: Sessions,
    absences: Absences,
    config: BrokerConfig,
    now_ms: int,
) -> tuple[PartitionChanged, ...]:
    """Begin to move what may move now, from all draining brokers."""
    leaving = _draining(image)
    if not leaving:
        return ()
    moves = _Moves(image, sessions, config, leaving)
    gone = absences.at_least(config.broker_replacement_delay_ms, now_ms)
    moves.begin(gone | (leaving & absences.since_ms.keys()))
    return moves.changes.records()


class _Moves:
    """Of the partitions that brokers which are ``leaving`` have."""

    def __init__(
        self,
        image: ClusterImage,
        sessions: Sessions,
        config: BrokerConfig,
        leaving: frozenset[int],
    ) -> None:
        self.changes = PartitionChanges(
            image, config, stopping=sessions.stopping, failed_on=sessions.failed_on
        )
        self._image = image
        self._leaving = leaving
        self._alive = frozenset(broker.broker_id for broker in image.alive_brokers())

    def progress(self, broker_id: int) -> DrainedBroker:
        left = self._image.partitions_of(broker_id)
        return DrainedBroker(
            broker_id=broker_id,
            partitions_left=len(left),
            partitions_stuck=sum(self._is_stuck(tp, state) for tp, state in left.items()),
        )

    def begin(self, gone: frozenset[int]) -> None:
        """Nobody waits for those that are ``gone``."""
        hosted = {
            tp: state
            for broker_id in sorted(self._leaving)
            for tp, state in self._image.partitions_of(broker_id).items()
        }
        moving = sum(
            not self._leaving.isdisjoint(state.removing) and not self._is_stuck(tp, state)
            for tp, state in hosted.items()
        )
        draft: PlacementDraft | None = None
        for tp, state in hosted.items():
            if moving >= MOVES_MAX:
                break
            if state.offline or (_is_moving(state) and gone.isdisjoint(state.adding)):
                continue
            if not _is_moving(state) and self._is_stuck(tp, state):
                continue
            draft = draft or PlacementDraft(self._image)
            away = gone.intersection(state.adding)
            chosen = draft.substitute(targets(state), self._leaving | away)
            if chosen is not None:
                moving += self._move(tp, chosen)

    def _move(self, tp: TopicPartition, chosen: tuple[int, ...]) -> bool:
        """False: what the former move has copied is needed."""
        with suppress(KafkaError):
            self.changes.change(tp, lambda state, rules: begin_reassignment(state, chosen, rules))
            return True
        return False

    def _is_stuck(self, tp: TopicPartition, state: PartitionImage) -> bool:
        """Whether the partition cannot move, or goes to where too few are."""
        if state.offline:
            return True
        if _is_moving(state):
            wanted = targets(state)
            required = min(self.changes.rules(tp.topic).min_isr, len(wanted))
            too_few = len(self._alive.intersection(wanted)) < required
            return too_few or not self._alive.issuperset(state.adding)
        free = len(self._alive.difference(self._leaving, state.replicas))
        return free < sum(broker_id in self._leaving for broker_id in state.replicas)


def unregister_broker(image: ClusterImage, request: UnregisterBrokerRequest) -> Decision:
    """Forget a broker that is gone and has nothing that others may wait for.

    Deviation: Kafka forgets brokers that live or have replicas, too.  Here an id may be given out
    again, and a new broker must not be taken for one that held records.
    """
    broker = require_broker(image, request.broker_id)
    if not broker.fenced:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker.broker_id} is alive at {broker.endpoint}; stop it first",
        )
    left = len(image.partitions_of(broker.broker_id))
    if left:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker.broker_id} has replicas of {left} partitions; move them to other "
            "brokers first",
        )
    return Decision(
        records=(BrokerRemoved(broker_id=broker.broker_id),), response=UnregisterBrokerResponse()
    )


def _check_others_suffice(image: ClusterImage, leaving: Collection[int]) -> None:
    staying = [
        broker
        for broker in image.brokers.values()
        if broker.registered and not broker.draining and broker.broker_id not in leaving
    ]
    if not staying:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no broker would be left to take the replicas")
    for broker_id in leaving:
        for tp, state in image.partitions_of(broker_id).items():
            if len(targets(state)) > len(staying):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{tp} has {len(targets(state))} replicas, and {len(staying)} brokers would be "
                    "left to hold them",
                )


def _is_moving(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)


def _draining(image: ClusterImage) -> frozenset[int]:
    return frozenset(b.broker_id for b in image.brokers.values() if b.draining)
