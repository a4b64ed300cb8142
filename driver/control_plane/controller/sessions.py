"""Broker sessions: heartbeats, and the fencing of brokers that are silent, dead or stopped.

Owns: the last contact with each broker, and the effects of an expired session.  Must not know how a
broker is reached.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import Decision, WarnOperator
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import (
    LogSurvival,
    could_hand_over,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import BrokerFenced, BrokerImage, BrokerUnfenced, ClusterImage
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    OfflineReplica,
    ReportLossRequest,
    ReportLossResponse,
)


@dataclass(slots=True)
class Sessions:
    """The sessions of all alive brokers, by broker id.

    ``last_contact_ms`` is the time of the last contact.  A controller that has just started gives
    the alive brokers of its journal one session timeout; ``contacted`` are those that it has heard
    from itself.  ``in_controlled_shutdown`` are the brokers that have asked to stop, and still run.
    ``failed`` are the offline replicas of alive brokers, by topic id and partition; ``lost`` are
    those of them whose logs are gone.
    """

    timeout_ms: int
    last_contact_ms: dict[int, int] = field(default_factory=dict)
    contacted: set[int] = field(default_factory=set)
    in_controlled_shutdown: set[int] = field(default_factory=set)
    failed: dict[int, frozenset[tuple[UUID | None, int]]] = field(default_factory=dict)
    lost: dict[int, frozenset[tuple[UUID | None, int]]] = field(default_factory=dict)
    last_tick_ms: int | None = None

    def start_grace_period(self, image: ClusterImage, now_ms: int) -> None:
        self.last_contact_ms = {broker.broker_id: now_ms for broker in image.alive_brokers()}

    def record_contact(self, broker_id: int, now_ms: int) -> None:
        self.last_contact_ms[broker_id] = now_ms
        self.contacted.add(broker_id)

    def begin(self, broker_id: int, now_ms: int) -> None:
        """Begin the session of a broker process that has just registered."""
        self.in_controlled_shutdown.discard(broker_id)
        self.set_offline_replicas(broker_id, ())
        self.record_contact(broker_id, now_ms)

    def end(self, broker_id: int) -> None:
        self.last_contact_ms.pop(broker_id, None)
        self.contacted.discard(broker_id)
        self.in_controlled_shutdown.discard(broker_id)
        self.set_offline_replicas(broker_id, ())

    def set_offline_replicas(
        self, broker_id: int, replicas: Collection[OfflineReplica]
    ) -> list[OfflineReplica]:
        """Replace the broker's offline replicas.  Returns those not known as lost until now."""
        failed = frozenset((replica.topic_id, replica.partition) for replica in replicas)
        lost = frozenset((each.topic_id, each.partition) for each in replicas if each.lost)
        known = self.lost.get(broker_id, frozenset())
        for table, found in ((self.failed, failed), (self.lost, lost)):
            if found:
                table[broker_id] = found
            else:
                table.pop(broker_id, None)
        return [r for r in replicas if r.lost and (r.topic_id, r.partition) not in known]

    def may_join(self, broker_id: int, topic_id: UUID, partition: int) -> bool:
        """Whether an alive broker may join the partition's ISR."""
        works = not self.has_failed(broker_id, topic_id, partition)
        return works and broker_id not in self.in_controlled_shutdown

    def has_failed(self, broker_id: int, topic_id: UUID, partition: int) -> bool:
        """Whether an alive broker's replica of the partition is offline."""
        return (topic_id, partition) in self.failed.get(broker_id, frozenset())

    def failed_on(self, topic_id: UUID, partition: int) -> frozenset[int]:
        """The alive brokers whose replica of the partition is offline."""
        if not self.failed:
            return frozenset()
        key = topic_id, partition
        return frozenset(broker for broker, failed in self.failed.items() if key in failed)

    def extend_after_stall(self, now_ms: int) -> None:
        """Extend all sessions after a stall of this process, which could receive no heartbeats."""
        if self.last_tick_ms is not None:
            passed_ms = now_ms - self.last_tick_ms
            if passed_ms > self.timeout_ms // 2:
                for broker_id in self.last_contact_ms:
                    self.last_contact_ms[broker_id] += passed_ms
        self.last_tick_ms = now_ms

    def expired(self, now_ms: int) -> list[int]:
        """The ids of the brokers whose session has expired."""
        oldest = now_ms - self.timeout_ms
        return [
            broker_id for broker_id, last_ms in self.last_contact_ms.items() if last_ms <= oldest
        ]


def heartbeat(
    image: ClusterImage,
    sessions: Sessions,
    config: BrokerConfig,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> Decision:
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    if request.has_stopped:
        stopped = () if broker.fenced else (broker,)
        fencing = _fence(image, sessions, config, stopped, "stopped cleanly")
        return Decision(records=fencing.records, response=BrokerHeartbeatResponse(fenced=True))
    if request.wants_stop:
        return _prepare_stop(image, sessions, config, broker, now_ms)
    sessions.record_contact(broker.broker_id, now_ms)
    newly_lost = sessions.set_offline_replicas(broker.broker_id, request.offline)
    if not broker.fenced and not request.offline:
        return Decision(response=BrokerHeartbeatResponse(fenced=False))
    partitions = PartitionChanges(
        image,
        config,
        also_alive=broker.broker_id,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    unfenced: tuple[BrokerUnfenced, ...] = ()
    if broker.fenced:
        unfenced = (BrokerUnfenced(broker_id=broker.broker_id),)
        partitions.broker_returned(broker.broker_id)
    apply_failures(image, partitions, broker.broker_id, request.offline, newly_lost)
    return Decision(
        records=(*unfenced, *partitions.records()),
        response=BrokerHeartbeatResponse(fenced=False),
        effects=partitions.effects(),
    )


def apply_failures(
    image: ClusterImage,
    partitions: PartitionChanges,
    broker_id: int,
    offline: Collection[OfflineReplica],
    newly_lost: Iterable[OfflineReplica],
) -> None:
    """Apply a living broker's offline replicas; ``newly_lost`` are those it reports first now."""
    failed = [replica for replica in offline if not replica.lost]
    lost = [replica for replica in offline if replica.lost]
    partitions.replicas_failed(broker_id, _known(image, failed))
    gone = [replica for replica in lost if replica.gone]
    partitions.replicas_lost(
        broker_id,
        _known(image, lost),
        frozenset(_known(image, newly_lost)),
        frozenset(_known(image, gone)),
    )


def _known(image: ClusterImage, replicas: Iterable[OfflineReplica]) -> Iterator[TopicPartition]:
    for replica in replicas:
        topic = image.topic_by_id(replica.topic_id)
        if topic is not None:
            yield TopicPartition(topic.name, replica.partition)


def _prepare_stop(
    image: ClusterImage,
    sessions: Sessions,
    config: BrokerConfig,
    broker: BrokerImage,
    now_ms: int,
) -> Decision:
    """Controlled shutdown: one commit moves the leaderships that others can take.

    The broker is asked to wait while a replica that is not in sync yet could become leader.  The
    broker itself limits that wait.
    """
    if broker.fenced:  # a fenced broker leads no partition
        return Decision(response=BrokerHeartbeatResponse(fenced=True, may_stop=True))
    sessions.record_contact(broker.broker_id, now_ms)
    sessions.in_controlled_shutdown.add(broker.broker_id)
    partitions = PartitionChanges(
        image,
        config,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    partitions.broker_stops(broker.broker_id)
    may_stop = not any(
        could_hand_over(partitions.state(tp), broker.broker_id, partitions.rules(tp.topic))
        for tp in image.partitions_led_by(broker.broker_id)
    )
    return Decision(
        records=partitions.records(),
        response=BrokerHeartbeatResponse(may_stop=may_stop),
        effects=partitions.effects(),
    )


def report_broker_deaths(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, request: ReportLossRequest
) -> Decision:
    """Fence brokers whose death was observed, unless another incarnation has registered since."""
    dead: list[BrokerImage] = []
    for report in request.brokers:
        broker = image.broker(report.broker_id)
        if broker is None or broker.fenced or broker in dead:
            continue
        if report.incarnation is None or report.incarnation == broker.incarnation:
            dead.append(broker)
    decision = _fence(image, sessions, config, dead, "reported lost")
    return replace(decision, response=ReportLossResponse())


def fence_expired(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig, now_ms: int
) -> Decision:
    sessions.extend_after_stall(now_ms)
    silent = [image.brokers[broker_id] for broker_id in sessions.expired(now_ms)]
    reason = f"silent for {sessions.timeout_ms} ms"
    return _fence(image, sessions, config, silent, reason)


def require_broker(image: ClusterImage, broker_id: int) -> BrokerImage:
    """The registered broker with this id.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED.
    """
    broker = image.broker(broker_id)
    if broker is None or not broker.registered:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
        )
    return broker


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker that sent a request.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH; the broker must register first.
    """
    broker = require_broker(image, broker_id)
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} speaks with epoch {broker_epoch}; the present registration has "
            f"epoch {broker.broker_epoch}",
        )
    return broker


def _fence(
    image: ClusterImage,
    sessions: Sessions,
    config: BrokerConfig,
    brokers: Sequence[BrokerImage],
    reason: str,
) -> Decision:
    """Fence brokers together, so that none of them is elected in the place of another."""
    gone = frozenset(broker.broker_id for broker in brokers)
    partitions = PartitionChanges(
        image,
        config,
        also_gone=gone,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    partitions.brokers_left(gone, LogSurvival.WHOLE)
    fenced: list[BrokerFenced] = []
    for broker in brokers:
        sessions.end(broker.broker_id)
        fenced.append(BrokerFenced(broker_id=broker.broker_id, reason=reason))
    warnings = tuple(
        WarnOperator(message=f"fenced broker {broker.broker_id} at {broker.endpoint}: {reason}")
        for broker in brokers
    )
    return Decision(
        records=(*fenced, *partitions.records()), effects=(*warnings, *partitions.effects())
    )
