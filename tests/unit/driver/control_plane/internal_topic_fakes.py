"""Clusters with ``__consumer_offsets`` under test, and what the controller answers about it."""

from typing import Any

import pytest

from sparklog.driver.control_plane.controller import Decision
from sparklog.driver.control_plane.controller import internal_topics as internal_topics_module
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    ConfigChanged,
    PartitionImage,
    ReplicationFactorDeferred,
    TopicCreated,
)
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.private import (
    AssignBrokersRequest,
    CreateInternalTopicRequest,
    CreateInternalTopicResponse,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, topic_id

CREATE = CreateInternalTopicRequest(name=CONSUMER_OFFSETS)
EXISTS = CreateInternalTopicResponse()
WAIT_MS = internal_topics_module.BROKERS_WAIT_MS_MAX


def on(*replicas: int) -> PartitionImage:
    return PartitionImage(replicas=replicas, isr=replicas, last_known=replicas, leader=replicas[0])


def override(name: str, value: str) -> ConfigChanged:
    return ConfigChanged(
        resource_type=int(ResourceType.TOPIC),
        resource_name=CONSUMER_OFFSETS,
        name=name,
        value=value,
    )


OVERRIDES = (
    override("cleanup.policy", "compact"),
    override("compression.type", "producer"),
    override("segment.bytes", "104857600"),
)


def created(*partitions: PartitionImage, deferred: bool = False) -> Decision:
    """The decision that creates ``__consumer_offsets``."""
    topic = TopicCreated(topic=CONSUMER_OFFSETS, topic_id=topic_id(1), partitions=partitions)
    more = (ReplicationFactorDeferred(topic=CONSUMER_OFFSETS, deferred=True),) if deferred else ()
    return Decision(records=(topic, *OVERRIDES, *more), response=EXISTS)


def cluster(count: int, *, asked_for: int = 0, **settings: str) -> ControllerUnderTest:
    """A cluster with ``count`` brokers on hosts of their own."""
    under_test = ControllerUnderTest(**{"offsets_topic_num_partitions": "3", **settings})
    if asked_for:
        under_test.handle(AssignBrokersRequest(count=asked_for))
    for broker_id in range(1, count + 1):
        join(under_test, broker_id)
    return under_test


def join(under_test: ControllerUnderTest, broker_id: int) -> None:
    under_test.register(broker_id, executor_host=f"host-{broker_id}")


def refused(under_test: ControllerUnderTest, event: Any = CREATE) -> tuple[ErrorCode, str]:
    before = under_test.image.copy()
    with pytest.raises(KafkaError) as caught:
        under_test.handle(event)
    assert under_test.image == before
    return caught.value.code, caught.value.message or ""


def missing(asked_for: int, registered: int, alive: int) -> tuple[ErrorCode, str]:
    return (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"of {asked_for} brokers, {registered} have registered and {alive} are alive; the topic "
        "waits for the others, 30 s at most",
    )


def replicas(under_test: ControllerUnderTest) -> list[tuple[int, ...]]:
    return [s.replicas for s in under_test.image.topics[CONSUMER_OFFSETS].partitions.values()]


def catch_up(under_test: ControllerUnderTest) -> int:
    """Every replica on an alive broker joins its ISR.  Returns the number of moves completed."""
    done = 0
    for tp, state in list(under_test.image.partitions()):
        if not state.adding or not all(map(under_test.image.is_alive, state.replicas)):
            continue
        proposal = PartitionData(
            partition_index=tp.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=b, broker_epoch=under_test.epoch_of(b))
                for b in state.replicas
            ),
        )
        topic = under_test.image.topics[tp.topic].topic_id
        under_test.handle(
            AlterPartitionRequest(
                broker_id=state.leader,
                broker_epoch=under_test.epoch_of(state.leader),
                topics=(TopicData(topic_id=topic, partitions=(proposal,)),),
            )
        )
        done += 1
    return done


def tick(under_test: ControllerUnderTest) -> Decision:
    return under_test.tick(under_test.now_ms + 100)


def settle(under_test: ControllerUnderTest) -> None:
    """Tick until nothing changes any more."""
    for _ in range(100):
        if not tick(under_test).records and not catch_up(under_test):
            return
    raise AssertionError("it never comes to rest")
