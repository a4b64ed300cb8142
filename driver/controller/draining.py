"""Brokers on their way out: their replicas go to others, then their ids are forgotten.

Owns: what draining brokers lose next, and who may be unregistered.  Must not know how replicas
catch up, nor who stops the processes.

A limited number of partitions move at a time, those aside that go to where nobody is; the rest
follow as those arrive, driven by the clock, so that draining survives whoever asked for it, and the
controller itself.
"""

from collections.abc import Collection

from sparklog.config import BrokerConfig
from sparklog.driver.controller.assignments import PlacementDraft, targets
from sparklog.driver.controller.decision import Decision
from sparklog.driver.controller.partition_changes import PartitionChanges
from sparklog.driver.controller.reassignments import begun
from sparklog.driver.controller.sessions import Sessions, require_broker
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    BrokerDraining,
    BrokerRemoved,
    ClusterImage,
    PartitionChanged,
    PartitionImage,
)
from sparklog.types import TopicPartition
from sparklog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from sparklog.wire.private import DrainBrokersRequest, DrainBrokersResponse, DrainedBroker

#: Partitions that move away from draining brokers at a time.
MOVES_MAX = 100


def drain_brokers(image: ClusterImage, request: DrainBrokersRequest) -> Decision:
    """Raises KafkaError when the other brokers could not hold what these have."""
    brokers = [require_broker(image, broker_id) for broker_id in dict.fromkeys(request.broker_ids)]
    if not request.cancel:
        _check_others_suffice(image, {broker.broker_id for broker in brokers})
    changed = tuple(
        BrokerDraining(broker_id=broker.broker_id, draining=not request.cancel)
        for broker in brokers
        if broker.draining == request.cancel
    )
    return Decision(
        records=changed,
        response=DrainBrokersResponse(
            brokers=tuple(_progress(image, broker.broker_id) for broker in brokers)
        ),
    )


def go_on_draining(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig
) -> tuple[PartitionChanged, ...]:
    """Begin to move what may move now, from all draining brokers."""
    leaving = _draining(image)
    if not leaving:
        return ()
    alive = _alive(image)
    hosted = {tp: state for b in sorted(leaving) for tp, state in image.partitions_of(b).items()}
    moving = sum(
        not leaving.isdisjoint(state.removing) and not _is_stuck(state, alive, leaving)
        for state in hosted.values()
    )
    changes = PartitionChanges(image, config, stopping=sessions.stopping)
    draft: PlacementDraft | None = None
    for tp, state in hosted.items():
        if moving >= MOVES_MAX:
            break
        if _is_moving(state) or _is_stuck(state, alive, leaving):
            continue
        draft = draft or PlacementDraft(image)
        chosen = draft.substitute(state.replicas, leaving)
        assert chosen is not None, "it is not stuck"
        _begin(changes, tp, chosen)
        moving += 1
    return changes.records()


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


def _progress(image: ClusterImage, broker_id: int) -> DrainedBroker:
    left = image.partitions_of(broker_id)
    alive, leaving = _alive(image), _draining(image) | {broker_id}
    return DrainedBroker(
        broker_id=broker_id,
        partitions_left=len(left),
        partitions_stuck=sum(_is_stuck(state, alive, leaving) for state in left.values()),
    )


def _is_moving(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)


def _is_stuck(state: PartitionImage, alive: frozenset[int], leaving: frozenset[int]) -> bool:
    """Whether the partition cannot move, or goes to where nobody is."""
    if state.offline or _is_moving(state):
        return state.offline or not alive.issuperset(state.adding)
    free = len(alive.difference(leaving, state.replicas))
    return free < sum(broker_id in leaving for broker_id in state.replicas)


def _alive(image: ClusterImage) -> frozenset[int]:
    return frozenset(broker.broker_id for broker in image.alive_brokers())


def _draining(image: ClusterImage) -> frozenset[int]:
    return frozenset(b.broker_id for b in image.brokers.values() if b.draining)


def _begin(changes: PartitionChanges, tp: TopicPartition, chosen: tuple[int, ...]) -> None:
    changes.change(tp, lambda state, rules: begun(state, chosen, rules))
