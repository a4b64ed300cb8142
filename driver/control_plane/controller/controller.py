"""The controller, with one entry: an event and the time in, a decision out.

Owns: the speculative image, which runs ahead of the journal, and the broker sessions.  Must not
know where events come from, nor how or when records become durable: the control plane commits them
in the order of the decisions, and replaces this controller when it cannot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.brokers import assign_brokers, register_broker
from sparklog.driver.control_plane.controller.config_effects import apply_config_effects
from sparklog.driver.control_plane.controller.configs import change_configs
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.draining import (
    FencedBrokers,
    continue_draining,
    drain_brokers,
    unregister_broker,
)
from sparklog.driver.control_plane.controller.internal_topics import (
    BrokersAwaited,
    create_internal_topic,
    raise_replication_factors,
)
from sparklog.driver.control_plane.controller.isr_changes import alter_partitions
from sparklog.driver.control_plane.controller.leader_elections import LeaderBalance, elect_leaders
from sparklog.driver.control_plane.controller.producer_ids import (
    OwnProducerIds,
    allocate_producer_ids,
    init_producer_id,
)
from sparklog.driver.control_plane.controller.reassignments import alter_reassignments
from sparklog.driver.control_plane.controller.sessions import (
    Sessions,
    fence_expired,
    heartbeat,
    report_broker_deaths,
)
from sparklog.driver.control_plane.controller.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    finish_remote_deletes,
)
from sparklog.driver.control_plane.controller.unclean_recoveries import (
    UncleanRecoveries,
    recover,
    report_log_ends,
)
from sparklog.metadata import ClusterImage, Record
from sparklog.service.settings import changed_config
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.protocol.messages.alter_partition import AlterPartitionRequest
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from sparklog.wire.protocol.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.protocol.messages.create_topics import CreateTopicsRequest
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.private import (
    AllocateProducerIdsRequest,
    AssignBrokersRequest,
    BrokerHeartbeatRequest,
    CreateInternalTopicRequest,
    DrainBrokersRequest,
    RegisterBrokerRequest,
    ReportLogEndsRequest,
    ReportLossRequest,
)


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The clock tick, several times per session timeout."""


@dataclass(frozen=True, slots=True)
class RemoteDeletesFinished:
    """The remote_dir has nothing of these deleted topics any more."""

    topic_ids: frozenset[UUID]


Event = (
    TimePassed
    | RemoteDeletesFinished
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | AlterPartitionReassignmentsRequest
    | IncrementalAlterConfigsRequest
    | AlterConfigsRequest
    | InitProducerIdRequest
    | RegisterBrokerRequest
    | BrokerHeartbeatRequest
    | AllocateProducerIdsRequest
    | AssignBrokersRequest
    | CreateInternalTopicRequest
    | DrainBrokersRequest
    | UnregisterBrokerRequest
    | ReportLossRequest
    | AlterPartitionRequest
    | ElectLeadersRequest
    | ReportLogEndsRequest
)


class BrokenImageError(AssertionError):
    """A decision did not fit the image, whose content is now unknown: a bug in the controller."""


class Controller:
    """Decides on all changes of the cluster's metadata.

    Args:
        image: the committed image; the controller changes it.
        config: the settings that the cluster was started with.
        new_id: makes topic ids.
        wall_ms: the time of day.
        now_ms: the time, in milliseconds of a clock that never goes back.
    """

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        *,
        new_id: Callable[[], UUID],
        wall_ms: Callable[[], int],
        now_ms: int,
    ) -> None:
        self.image = image
        self._start_config = config
        self._config = config
        self._config_changes: Mapping[str, str] = {}
        self._new_id = new_id
        self._wall_ms = wall_ms
        self._sessions = Sessions(timeout_ms=config.broker_session_timeout_ms)
        self._sessions.start_grace_period(image, now_ms)
        self._recoveries = UncleanRecoveries(self._sessions)
        self._fenced_brokers = FencedBrokers()
        self._balance = LeaderBalance(
            due_ms=now_ms + config.leader_imbalance_check_interval_seconds * 1000
        )
        self._own_producer_ids = OwnProducerIds()
        self._brokers_awaited = BrokersAwaited()

    def handle(self, event: Event, now_ms: int) -> Decision:
        """Decide on an event, and apply the decision to the speculative image.

        Args:
            now_ms: the time, in milliseconds of a clock that never goes back.

        Raises:
            KafkaError: the event is refused; nothing has changed.
            BrokenImageError: the decision did not fit the image; this process must end.
        """
        decision = self._decide(event, now_ms)
        self._replay(decision.records)
        follows = apply_config_effects(
            self.image, self._sessions, self._present_config(), decision.records
        )
        self._replay(follows.records)
        return replace(
            decision,
            records=decision.records + follows.records,
            effects=decision.effects + follows.effects,
        )

    def _replay(self, records: Iterable[Record]) -> None:
        try:
            for record in records:
                self.image.replay(record)
        except Exception as error:
            raise BrokenImageError(f"cannot replay {records}") from error

    def has_failed(self, broker_id: int, topic_id: UUID, partition: int) -> bool:
        """Whether an alive broker has reported its replica of the partition as offline."""
        return self._sessions.has_failed(broker_id, topic_id, partition)

    def check_invariants(self) -> None:
        self.image.check_invariants()
        alive = {broker.broker_id for broker in self.image.alive_brokers()}
        assert self._sessions.last_contact_ms.keys() == alive
        assert self._sessions.contacted <= alive
        assert self._sessions.in_controlled_shutdown <= alive
        assert self._sessions.failed.keys() <= alive
        for tp, state in self.image.partitions():
            assert alive.issuperset(state.isr), (str(tp), state)
        assert self._own_producer_ids.next_id <= self._own_producer_ids.end

    def _decide(self, event: Event, now_ms: int) -> Decision:  # noqa: C901 - one case per event
        image, sessions, config = self.image, self._sessions, self._present_config()
        match event:
            case TimePassed():
                return self._pass_time(now_ms)
            case BrokerHeartbeatRequest():
                return heartbeat(image, sessions, config, event, now_ms)
            case RegisterBrokerRequest():
                return register_broker(image, sessions, config, event, now_ms)
            case ReportLossRequest():
                return report_broker_deaths(image, sessions, config, event)
            case AlterPartitionRequest():
                return alter_partitions(image, sessions, config, event)
            case ElectLeadersRequest():
                return elect_leaders(image, sessions, self._recoveries, config, event)
            case ReportLogEndsRequest():
                return report_log_ends(image, sessions, self._recoveries, config, event, now_ms)
            case DrainBrokersRequest():
                return drain_brokers(image, sessions, config, event)
            case UnregisterBrokerRequest():
                return unregister_broker(image, event)
            case AssignBrokersRequest():
                return assign_brokers(image, event)
            case CreateTopicsRequest():
                return create_topics(image, config, event, self._new_id)
            case CreateInternalTopicRequest():
                return create_internal_topic(
                    image, config, self._brokers_awaited, event, self._new_id, now_ms
                )
            case DeleteTopicsRequest():
                return delete_topics(image, config, event, self._wall_ms())
            case RemoteDeletesFinished():
                return finish_remote_deletes(image, event.topic_ids)
            case CreatePartitionsRequest():
                return create_partitions(image, event)
            case AlterPartitionReassignmentsRequest():
                return alter_reassignments(image, sessions, config, event)
            case IncrementalAlterConfigsRequest() | AlterConfigsRequest():
                return change_configs(image, self._start_config, event)
            case AllocateProducerIdsRequest():
                return allocate_producer_ids(image, event)
            case InitProducerIdRequest():
                return init_producer_id(image, self._own_producer_ids)
            case _:
                assert_never(event)

    def _pass_time(self, now_ms: int) -> Decision:
        """Do one kind of change per tick; other kinds follow at the next ticks."""
        image, sessions, config = self.image, self._sessions, self._present_config()
        self._fenced_brokers.update(image, now_ms)
        decision = fence_expired(image, sessions, config, now_ms)
        if not decision.records:
            decision = recover(image, sessions, self._recoveries, config, now_ms)
        if not decision.records:
            moved_on = continue_draining(image, sessions, self._fenced_brokers, config, now_ms)
            decision = replace(decision, records=moved_on)
        if not decision.records:
            raised = raise_replication_factors(image, sessions, config)
            decision = replace(decision, records=raised)
        if not decision.records:
            moved = self._balance.rebalance(image, sessions, config, now_ms)
            decision = replace(moved, effects=(*decision.effects, *moved.effects))
        return decision

    def _present_config(self) -> BrokerConfig:
        """The settings of all brokers, with the changes made at run time."""
        changes = self.image.broker_overrides(None)
        if changes != self._config_changes:
            self._config_changes = changes
            self._config = changed_config(self._start_config, changes)
        return self._config
