"""Broker ids and broker registration.

Owns: which process holds a broker id.  Must not know how a broker is reached.

A registration replaces a live registration only when the former process must have ended.  The same
directory on the same host proves that, because only one process at a time can lock the directory.
Otherwise the former session has to end first.
"""

from collections.abc import Iterator

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import (
    CountUncleanRecoveries,
    Decision,
    Effect,
    WarnOperator,
)
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges, named
from sparklog.driver.control_plane.controller.partition_transitions import LogSurvival
from sparklog.driver.control_plane.controller.sessions import Sessions, apply_failures
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterImage,
    Record,
)
from sparklog.types import CONTROLLER_NODE_ID, NO_BROKER_EPOCH
from sparklog.wire.protocol.private import (
    AssignBrokersRequest,
    AssignBrokersResponse,
    AssignedBroker,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

#: Most brokers that a launcher may request.
BROKERS_MAX = 1_000


def assign_brokers(image: ClusterImage, request: AssignBrokersRequest) -> Decision:
    """Assign the broker ids to start: every id that has a directory, and new ids up to ``count``.

    Ids that were assigned but never registered are assigned again, or removed if not needed.
    """
    if not 0 < request.count <= BROKERS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a cluster has 1 to {BROKERS_MAX} brokers, not {request.count}",
        )
    known = sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
    chosen = [broker for broker in known if broker.registered]
    unused = [broker for broker in known if not broker.registered]
    wanted = max(request.count - len(chosen), 0)
    records: list[Record] = [BrokerRemoved(broker_id=b.broker_id) for b in unused[wanted:]]
    chosen += unused[:wanted]
    next_id = max(image.brokers, default=CONTROLLER_NODE_ID) + 1
    for broker_id in range(next_id, next_id + request.count - len(chosen)):
        records.append(BrokerIdAssigned(broker_id=broker_id))
        chosen.append(BrokerImage(broker_id=broker_id))
    return Decision(
        records=tuple(records),
        response=AssignBrokersResponse(brokers=tuple(map(_assigned, chosen))),
    )


def _assigned(broker: BrokerImage) -> AssignedBroker:
    return AssignedBroker(
        broker_id=broker.broker_id,
        directory_id=broker.directory_id,
        host=broker.executor_host or None,
        new=not broker.registered,
    )


def register_broker(
    image: ClusterImage,
    sessions: Sessions,
    config: BrokerConfig,
    request: RegisterBrokerRequest,
    now_ms: int,
) -> Decision:
    former = image.broker(request.broker_id) or BrokerImage(broker_id=request.broker_id)
    _check_registration(image, sessions, former, request)
    continued = former.registered and former.incarnation == request.incarnation
    new_directory = former.registered and former.directory_id != request.directory_id
    clean = continued or (not new_directory and _stopped_cleanly(former, request))
    broker = BrokerImage(
        broker_id=request.broker_id,
        directory_id=request.directory_id,
        incarnation=request.incarnation,
        broker_epoch=former.broker_epoch + 1,
        host=request.host,
        port=request.port,
        executor_host=request.executor_host,
        executor_id=request.executor_id,
        job=request.job,
        rack=request.rack,
        draining=former.draining,
    )
    survival = (
        LogSurvival.NOTHING if new_directory else LogSurvival.WHOLE if clean else LogSurvival.HEAD
    )
    sessions.begin(broker.broker_id, now_ms)
    newly_lost = sessions.set_offline_replicas(broker.broker_id, request.offline)
    partitions = PartitionChanges(
        image,
        config,
        also_alive=broker.broker_id,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    if continued:
        partitions.broker_returned(broker.broker_id)
    else:
        partitions.brokers_left((broker.broker_id,), survival)
    apply_failures(image, partitions, broker.broker_id, request.offline, newly_lost)
    return Decision(
        records=(
            BrokerRegistered(broker=broker, clean=clean),
            *partitions.records(),
            BrokerUnfenced(broker_id=broker.broker_id),
        ),
        response=RegisterBrokerResponse(
            broker_epoch=broker.broker_epoch, controller_epoch=image.controller_epoch
        ),
        effects=tuple(_registration_effects(broker.broker_id, survival, partitions)),
    )


def _stopped_cleanly(former: BrokerImage, request: RegisterBrokerRequest) -> bool:
    """Whether the broker's directory is as the former process left it (KIP-966).

    A clean shutdown marker of an earlier process shows that the directory was restored from a
    copy, which lacks all later records.
    """
    if not former.registered:
        return True
    return request.clean_stop and request.clean_epoch in (NO_BROKER_EPOCH, former.broker_epoch)


def _check_registration(
    image: ClusterImage, sessions: Sessions, former: BrokerImage, request: RegisterBrokerRequest
) -> None:
    broker_id = request.broker_id
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {broker_id} belongs to cluster {request.cluster_id!r}; this is "
            f"{image.cluster_id!r}: start it with the data directory of this cluster",
        )
    if broker_id <= CONTROLLER_NODE_ID:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"{broker_id} is not a broker id")
    if request.directory_id is None or request.incarnation is None or not request.host:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, "directory id, incarnation and host must be given"
        )
    for other in image.brokers.values():
        if other.directory_id == request.directory_id and other.broker_id != broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"directory {request.directory_id} belongs to broker {other.broker_id}; "
                f"broker {broker_id} cannot have it too (was a data directory copied?)",
            )
    if former.incarnation == request.incarnation or former.fenced:
        return
    same_directory = former.directory_id == request.directory_id
    is_successor = (
        former.executor_host == request.executor_host or broker_id not in sessions.contacted
    )
    if not (same_directory and is_successor):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker_id} is alive at {former.endpoint} (directory {former.directory_id} "
            f"on {former.executor_host}); stop it, or try again after its session of "
            f"{sessions.timeout_ms} ms",
        )


def _registration_effects(
    broker_id: int, survival: LogSurvival, partitions: "PartitionChanges"
) -> Iterator[Effect]:
    yield from partitions.warnings_of_losses()
    unclean = partitions.unclean
    led_again = [tp for tp in unclean if partitions.state(tp).leader == broker_id]
    led_by_others = [tp for tp in unclean if partitions.state(tp).leader != broker_id]
    if led_again:
        yield WarnOperator(
            message=f"broker {broker_id} stopped uncleanly and was the last that had everything of "
            f"{named(led_again)}: it leads again from what its log holds; if its machine failed "
            "too, records that were not on disk yet are lost (unclean recovery)"
        )
        yield CountUncleanRecoveries(partitions=len(led_again))
    yield from partitions.warnings_of_unclean_leaders(led_by_others)
    gone = [
        tp
        for tp in partitions.offline
        if not partitions.state(tp).last_known and not partitions.rules(tp.topic).tiered
    ]
    if survival is LogSurvival.NOTHING and gone:
        yield WarnOperator(
            message=f"broker {broker_id} came back with a new directory; offline for good, because "
            f"only the former one held them: {named(gone)}; sparklog elect-leaders --unclean lets "
            "an empty replica lead them"
        )
