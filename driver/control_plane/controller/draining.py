"""Draining: the replicas of draining brokers move to other brokers, then the ids are unregistered.

Owns: which replicas move next, and which brokers may be unregistered.  Must not know how replicas
catch up, nor what stops the processes.

A limited number of partitions moves at a time; moves to brokers that are not alive do not count.
Further moves begin on clock ticks, as earlier ones complete.  Therefore draining continues after
the client that asked for it has gone, and after a restart of the controller.

A broker that is fenced for ``broker.replacement.delay.ms`` is not waited for any longer: replicas
that were to move there go to another broker, unless the broker holds records that others lack.  A
fenced broker that keeps its replica delays no move while enough other replicas are in sync.

If fewer brokers stay than a partition has replicas, the drain is refused.  An internal topic, whose
replication factor nobody has asked for, gives up replicas instead, and gets them back when brokers
are added (``internal_topics``).
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
    BrokerImage,
    BrokerRemoved,
    ClusterImage,
    PartitionImage,
    Record,
    ReplicationFactorDeferred,
)
from sparklog.metadata.topic_names import INTERNAL_TOPICS
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from sparklog.wire.protocol.private import DrainBrokersRequest, DrainBrokersResponse, DrainedBroker

#: Most partitions that move away from draining brokers at the same time.
MOVES_MAX = 100


@dataclass(slots=True)
class FencedBrokers:
    """How long brokers have been fenced, as far as this controller has seen."""

    since_ms: dict[int, int] = field(default_factory=dict)

    def update(self, image: ClusterImage, now_ms: int) -> None:
        """Take note of the brokers that are fenced now; called at every tick."""
        away = [broker.broker_id for broker in image.brokers.values() if broker.fenced]
        self.since_ms = {broker_id: self.since_ms.get(broker_id, now_ms) for broker_id in away}

    def fenced_for(self, delay_ms: int, now_ms: int) -> frozenset[int]:
        return frozenset(
            b for b, since_ms in self.since_ms.items() if now_ms - since_ms >= delay_ms
        )


def drain_brokers(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, request: DrainBrokersRequest
) -> Decision:
    """Begin or cancel draining brokers, and answer with their progress.

    A request without ids asks about all draining brokers.

    Raises:
        KafkaError: a broker is not registered, or the other brokers could not hold the replicas.
    """
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
    fenced_brokers: FencedBrokers,
    config: BrokerConfig,
    now_ms: int,
) -> tuple[Record, ...]:
    """Begin the next moves, of all draining brokers."""
    leaving = _draining(image)
    if not leaving:
        return ()
    moves = _Moves(image, sessions, config, leaving)
    gone = fenced_brokers.fenced_for(config.broker_replacement_delay_ms, now_ms)
    moves.begin(gone | (leaving & fenced_brokers.since_ms.keys()))
    deferred = (
        ReplicationFactorDeferred(topic=name, deferred=True)
        for name in sorted(moves.reduced - image.deferred_factors)
    )
    return (*moves.changes.records(), *deferred)


class _Moves:
    """The moves of the partitions that have a replica on a ``leaving`` broker."""

    def __init__(
        self,
        image: ClusterImage,
        sessions: Sessions,
        config: BrokerConfig,
        leaving: frozenset[int],
    ) -> None:
        self.changes = PartitionChanges(
            image,
            config,
            in_controlled_shutdown=sessions.in_controlled_shutdown,
            failed_on=sessions.failed_on,
        )
        #: Topics that give up replicas, because too few brokers stay.
        self.reduced: set[str] = set()
        self._image = image
        self._leaving = leaving
        self._staying = len(_staying(image, leaving))
        self._alive = frozenset(broker.broker_id for broker in image.alive_brokers())

    def progress(self, broker_id: int) -> DrainedBroker:
        left = self._image.partitions_of(broker_id)
        return DrainedBroker(
            broker_id=broker_id,
            partitions_left=len(left),
            partitions_stuck=sum(self._is_stuck(tp, state) for tp, state in left.items()),
        )

    def begin(self, gone: frozenset[int]) -> None:
        """Begin moves; ``gone`` are the fenced brokers that are not waited for."""
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
            kept = self._without_surplus(tp, targets(state))
            chosen = draft.substitute(kept, self._leaving | away)
            if chosen is not None and self._move(tp, chosen):
                moving += 1
                self.reduced |= {tp.topic} if len(kept) < len(targets(state)) else set()

    def _surplus(self, tp: TopicPartition, replicas: tuple[int, ...]) -> int:
        """How many of the replicas of an internal topic have no broker to go to."""
        return max(len(replicas) - self._staying, 0) if tp.topic in INTERNAL_TOPICS else 0

    def _without_surplus(self, tp: TopicPartition, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """The replicas that the partition keeps; the last ones on leaving brokers go first."""
        leaving = [broker_id for broker_id in replicas if broker_id in self._leaving]
        given_up = leaving[max(len(leaving) - self._surplus(tp, replicas), 0) :]
        return tuple(broker_id for broker_id in replicas if broker_id not in given_up)

    def _move(self, tp: TopicPartition, chosen: tuple[int, ...]) -> bool:
        """Begin one move.  Returns False if the former move's replicas are still needed."""
        with suppress(KafkaError):
            self.changes.change(tp, lambda state, rules: begin_reassignment(state, chosen, rules))
            return True
        return False

    def _is_stuck(self, tp: TopicPartition, state: PartitionImage) -> bool:
        """Whether the partition cannot move, or moves to replicas of which too few are alive."""
        if state.offline:
            return True
        if _is_moving(state):
            wanted = targets(state)
            required = min(self.changes.rules(tp.topic).min_isr, len(wanted))
            too_few = len(self._alive.intersection(wanted)) < required
            return too_few or not self._alive.issuperset(state.adding)
        free = len(self._alive.difference(self._leaving, state.replicas))
        needed = sum(broker_id in self._leaving for broker_id in state.replicas)
        return free < needed - self._surplus(tp, state.replicas)


def unregister_broker(image: ClusterImage, request: UnregisterBrokerRequest) -> Decision:
    """Unregister a broker that is fenced and has no replicas.

    Deviation: Kafka also unregisters brokers that are alive or have replicas.  Here an id may be
    assigned again, and a new broker must not be taken for the one that held records.
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
    staying = _staying(image, leaving)
    if not staying:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no broker would be left to take the replicas")
    for broker_id in leaving:
        for tp, state in image.partitions_of(broker_id).items():
            if len(targets(state)) > len(staying) and tp.topic not in INTERNAL_TOPICS:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{tp} has {len(targets(state))} replicas, and {len(staying)} brokers would be "
                    "left to hold them",
                )


def _staying(image: ClusterImage, leaving: Collection[int]) -> list[BrokerImage]:
    """The registered brokers that keep their replicas."""
    return [
        broker
        for broker in image.brokers.values()
        if broker.registered and not broker.draining and broker.broker_id not in leaving
    ]


def _is_moving(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)


def _draining(image: ClusterImage) -> frozenset[int]:
    return frozenset(b.broker_id for b in image.brokers.values() if b.draining)
