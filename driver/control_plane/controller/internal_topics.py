"""Internal topics: their creation, and the replicas that they get when brokers are added.

Owns: the table of internal topics, which brokers a creation waits for, and the moves that raise a
replication factor.  Must not know what the topics contain, nor what asks for one.

A new internal topic has its configured replication factor, or one replica per broker that was
asked for, if these are fewer.  The creation waits until every broker that was asked for has
registered once, so that replicas can spread over all of them, and until enough of them are alive.
After ``BROKERS_WAIT_MS_MAX`` of refused requests it does not wait any longer, and takes the brokers
that are alive.

A topic that was created below its configured factor gets further replicas as brokers are added.
These are ordinary reassignments, of a limited number of partitions at a time, and none begins while
a broker drains.  Once every partition has its replicas, the factor is left to the operator.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from uuid import UUID

from sparklog.config import TOPIC_SETTING_BY_NAME, BrokerConfig
from sparklog.driver.control_plane.controller.assignments import (
    PlacementDraft,
    shared_warning,
    targets,
)
from sparklog.driver.control_plane.controller.decision import Decision, WarnOperator
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import new_partition
from sparklog.driver.control_plane.controller.reassignments import begin_reassignment
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    ClusterImage,
    ConfigChanged,
    PartitionImage,
    Record,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicImage,
)
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, SPARKLOG_JOBS, TRANSACTION_STATE
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.private import CreateInternalTopicRequest, CreateInternalTopicResponse

#: How long requests for an internal topic are refused for brokers that are not there.
BROKERS_WAIT_MS_MAX: Final = 30_000
#: Most partitions of internal topics that get further replicas at the same time.
RAISES_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """The number of partitions, the replication factor and the settings of an internal topic."""

    partitions: int
    replication_factor: int
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def internal_topics(config: BrokerConfig) -> Mapping[str, InternalTopic]:
    """The internal topics by name, with Kafka's settings (``GroupCoordinator``,
    ``TransactionLog``)."""
    return {
        CONSUMER_OFFSETS: InternalTopic(
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            overrides=_compacted(config.offsets_topic_segment_bytes),
        ),
        TRANSACTION_STATE: InternalTopic(
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            overrides={
                **_compacted(config.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
            },
        ),
        # No coordinator has settings for this topic yet.
        SPARKLOG_JOBS: InternalTopic(
            partitions=50,
            replication_factor=3,
            overrides={**_compacted(104_857_600), "min.insync.replicas": "2"},
        ),
    }


def _compacted(segment_bytes: int) -> dict[str, str]:
    """The settings of a topic that keeps the last record of every key."""
    # The setting of the cluster allows segments that are smaller than those of any topic.
    smallest = TOPIC_SETTING_BY_NAME["segment.bytes"].minimum or 0
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(max(segment_bytes, int(smallest))),
    }


# -- creation


@dataclass(slots=True)
class BrokersAwaited:
    """How long requests for internal topics have been refused for missing brokers.

    A pause of ``BROKERS_WAIT_MS_MAX`` between two requests begins a new wait.
    """

    since_ms: int | None = None
    last_ms: int = 0

    def has_waited(self, now_ms: int) -> bool:
        """Take note of a request that lacks brokers.  Returns whether it has waited enough."""
        if self.since_ms is None or now_ms - self.last_ms > BROKERS_WAIT_MS_MAX:
            self.since_ms = now_ms
        self.last_ms = now_ms
        return now_ms - self.since_ms >= BROKERS_WAIT_MS_MAX


def create_internal_topic(
    image: ClusterImage,
    config: BrokerConfig,
    awaited: BrokersAwaited,
    request: CreateInternalTopicRequest,
    new_id: Callable[[], UUID],
    now_ms: int,
) -> Decision:
    """Create an internal topic, unless it exists.

    Raises:
        KafkaError: COORDINATOR_NOT_AVAILABLE while brokers are missing; INVALID_TOPIC_EXCEPTION for
            any other name.
    """
    name = request.name
    topic = internal_topics(config).get(name)
    if topic is None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not an internal topic")
    response = CreateInternalTopicResponse()
    if image.topic(name) is not None:
        return Decision(response=response)
    factor = _factor(image, topic.replication_factor, awaited, now_ms)
    replicas = PlacementDraft(image).place(topic.partitions, factor)
    partitions = tuple(new_partition(chosen, image.is_alive) for chosen in replicas)
    records: list[Record] = [
        TopicCreated(topic=name, topic_id=new_id(), partitions=partitions),
        *(
            ConfigChanged(
                resource_type=int(ResourceType.TOPIC), resource_name=name, name=setting, value=value
            )
            for setting, value in topic.overrides.items()
        ),
    ]
    if factor < topic.replication_factor:
        records.append(ReplicationFactorDeferred(topic=name, deferred=True))
    warning = shared_warning(image, name, replicas)
    return Decision(
        records=tuple(records),
        response=response,
        effects=(WarnOperator(message=warning),) if warning else (),
    )


def _factor(image: ClusterImage, wanted: int, awaited: BrokersAwaited, now_ms: int) -> int:
    """The replication factor of a new internal topic.  Raises KafkaError to let clients wait."""
    asked_for = [broker for broker in image.brokers.values() if not broker.draining]
    alive = [broker for broker in asked_for if image.is_alive(broker.broker_id)]
    registered = sum(broker.registered for broker in asked_for)
    factor = min(wanted, len(asked_for))
    if alive and registered == len(asked_for) and len(alive) >= factor:
        return factor
    if awaited.has_waited(now_ms) and alive:
        return min(wanted, len(alive))
    raise KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"of {len(asked_for)} brokers, {registered} have registered and {len(alive)} are alive; "
        f"the topic waits for the others, {BROKERS_WAIT_MS_MAX // 1000} s at most",
    )


# -- further replicas


def raise_replication_factors(
    image: ClusterImage, sessions: Sessions, config: BrokerConfig
) -> tuple[Record, ...]:
    """Add replicas to internal topics that were created with too few; called at clock ticks."""
    if not image.deferred_factors or any(b.draining for b in image.brokers.values()):
        return ()
    table = internal_topics(config)
    raises = _Raises(image, sessions, config)
    reached: list[Record] = []
    for name in sorted(image.deferred_factors & table.keys()):
        topic, wanted = image.topics[name], table[name].replication_factor
        if all(_has_replicas(state, wanted) for state in topic.partitions.values()):
            reached.append(ReplicationFactorDeferred(topic=name, deferred=False))
        else:
            raises.begin(topic, wanted)
    return (*reached, *raises.changes.records())


def _has_replicas(state: PartitionImage, wanted: int) -> bool:
    return not _is_moving(state) and len(state.replicas) >= wanted


def _is_moving(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)


class _Raises:
    """The reassignments of one tick that add replicas."""

    def __init__(self, image: ClusterImage, sessions: Sessions, config: BrokerConfig) -> None:
        self.changes = PartitionChanges(
            image,
            config,
            in_controlled_shutdown=sessions.in_controlled_shutdown,
            failed_on=sessions.failed_on,
        )
        self._image = image
        self._alive = len(image.alive_brokers())
        self._draft: PlacementDraft | None = None
        # Moves to brokers that are not alive may last long, and do not count.
        self._moving = sum(
            _is_moving(state) and all(map(image.is_alive, state.adding))
            for name in image.deferred_factors
            for state in image.topics[name].partitions.values()
        )

    def begin(self, topic: TopicImage, wanted: int) -> None:
        """Begin to raise partitions of a topic to the factor ``wanted``, or to one replica per
        alive broker."""
        factor = min(wanted, self._alive)
        present = {number: targets(state) for number, state in topic.partitions.items()}
        for number, state in topic.partitions.items():
            if self._moving >= RAISES_MAX:
                return
            if state.offline or _is_moving(state) or len(state.replicas) >= factor:
                continue
            self._draft = self._draft or PlacementDraft(self._image)
            others = [replicas for other, replicas in present.items() if other != number]
            chosen = self._draft.extend(state.replicas, factor, others)
            self._moving += self._move(TopicPartition(topic.name, number), chosen)
            present[number] = chosen

    def _move(self, tp: TopicPartition, chosen: tuple[int, ...]) -> bool:
        with suppress(KafkaError):
            self.changes.change(tp, lambda state, rules: begin_reassignment(state, chosen, rules))
            return True
        return False
