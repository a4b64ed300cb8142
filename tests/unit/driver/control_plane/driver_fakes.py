"""A controller under test, with fixed ids, a manual clock, and short methods for requests."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller import Controller, Decision, Event, TimePassed
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    ClusterCreated,
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    TopicCreated,
)
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    LostBroker,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportLossRequest,
)

CLUSTER = "cluster-under-test"


def directory(number: int) -> UUID:
    return UUID(int=1000 + number)


def incarnation(number: int) -> UUID:
    return UUID(int=2000 + number)


def topic_id(number: int) -> UUID:
    """The id of the ``number``-th topic that was created (from 1)."""
    return UUID(int=number)


#: The time of day of every decision.
WALL_MS = 1_000_000


class ControllerUnderTest:
    """A controller; ``now_ms`` is its clock."""

    def __init__(self, image: ClusterImage | None = None, **settings: str) -> None:
        self.now_ms = 0
        self.config = BrokerConfig.resolve(
            {name.replace("_", "."): value for name, value in settings.items()}
        )
        self._topics = 0
        self._processes = 0
        self.controller = Controller(
            image or first_image(),
            self.config,
            new_id=self._new_id,
            wall_ms=lambda: WALL_MS,
            now_ms=0,
        )

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def handle(self, event: Event) -> Decision:
        decision = self.controller.handle(event, self.now_ms)
        self.controller.check_invariants()
        return decision

    def refusal(self, event: Event) -> ErrorCode:
        """The error code that refuses the whole event; asserts that the image has not changed."""
        before = self.image.copy()
        try:
            self.handle(event)
        except KafkaError as error:
            assert self.image == before
            return error.code
        raise AssertionError("it was granted")

    def register(self, broker_id: int, **changes: object) -> Decision:
        return self.handle(registration(broker_id, **changes))

    def register_all(self, count: int) -> None:
        for broker_id in range(1, count + 1):
            self.register(broker_id)

    def epoch_of(self, broker_id: int) -> int:
        broker = self.image.broker(broker_id)
        assert broker is not None
        return broker.broker_epoch

    def heartbeat(
        self, broker_id: int, *, has_stopped: bool = False, wants_stop: bool = False
    ) -> Decision:
        return self.handle(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.epoch_of(broker_id),
                has_stopped=has_stopped,
                wants_stop=wants_stop,
            )
        )

    def lose(self, *brokers: int) -> Decision:
        """The launcher reports the brokers' death."""
        lost = tuple(LostBroker(broker_id=broker_id) for broker_id in brokers)
        return self.handle(ReportLossRequest(brokers=lost))

    def crash(self, broker_id: int, **changes: object) -> Decision:
        """A new process takes the broker's place after an unclean stop."""
        self._processes += 1
        fresh = {"incarnation": incarnation(100 + self._processes), **changes}
        return self.register(broker_id, **fresh)

    def tick(self, now_ms: int) -> Decision:
        """Advance the clock; all alive brokers send heartbeats."""
        self.now_ms = now_ms
        for broker in self.image.alive_brokers():
            self.heartbeat(broker.broker_id)
        return self.handle(TimePassed())

    def create(self, *names: str, partitions: int = 1) -> Decision:
        topics = tuple(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        )
        return self.handle(CreateTopicsRequest(topics=topics))

    def place(self, name: str, *partitions: PartitionImage, **overrides: str) -> UUID:
        """Create a topic with these partition states and settings.  Returns its id."""
        created = TopicCreated(topic=name, topic_id=self._new_id(), partitions=partitions)
        self.image.replay(created)
        for setting, value in overrides.items():
            self.image.replay(
                ConfigChanged(
                    resource_type=ResourceType.TOPIC,
                    resource_name=name,
                    name=setting.replace("_", "."),
                    value=value,
                )
            )
        self.controller.check_invariants()
        return created.topic_id

    def configure(self, topic: str, **overrides: str) -> Decision:
        """Set settings of a topic."""
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            configs=tuple(
                AlterableConfig(name=name.replace("_", "."), value=value)
                for name, value in overrides.items()
            ),
        )
        return self.handle(IncrementalAlterConfigsRequest(resources=(resource,)))

    def state(self, topic: str, partition: int = 0) -> PartitionImage:
        state = self.image.partition(TopicPartition(topic, partition))
        assert state is not None
        return state

    def leaders(self) -> dict[str, int]:
        return {str(tp): state.leader for tp, state in self.image.partitions()}

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        return self.state(topic, partition).leader_epoch

    def _new_id(self) -> UUID:
        self._topics += 1
        return topic_id(self._topics)


def first_image() -> ClusterImage:
    image = ClusterImage()
    image.replay_commit(
        1,
        (
            ClusterCreated(cluster_id=CLUSTER, created_ms=0),
            ControllerChanged(controller_epoch=1, host="127.0.0.1", port=9000),
        ),
    )
    return image


def partition(*replicas: int, **changes: Any) -> PartitionImage:
    """A partition with all replicas in sync, led by the first, with changes."""
    state = PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0])
    state = replace(state, **changes)
    known = changes.get("last_known", tuple(sorted({*state.isr, *state.eligible})))
    return replace(state, last_known=known)


def changed(topic: str, state: PartitionImage, number: int = 0) -> PartitionChanged:
    return PartitionChanged(topic=topic, partition=number, state=state)


def registration(broker_id: int, **changes: object) -> RegisterBrokerRequest:
    """The first start of a broker, with changes."""
    values: dict[str, object] = {
        "cluster_id": CLUSTER,
        "broker_id": broker_id,
        "directory_id": directory(broker_id),
        "incarnation": incarnation(broker_id),
        "host": "127.0.0.1",
        "port": 9100 + broker_id,
        "executor_host": "host-a",
        "executor_id": str(broker_id),
        "job": f"job-{broker_id}",
    }
    return RegisterBrokerRequest(**{**values, **changes})  # type: ignore[arg-type]


def registered(broker_epoch: int) -> RegisterBrokerResponse:
    return RegisterBrokerResponse(broker_epoch=broker_epoch, controller_epoch=1)
