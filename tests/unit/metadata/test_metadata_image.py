"""Replayed records make the image, and a snapshot makes an equal image."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.metadata import (
    BrokerFenced,
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    ControllerImage,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    ProducerIdsAllocated,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from sparklog.types import Endpoint, ResourceType, TopicPartition

LED = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)
BROKER = BrokerImage(
    broker_id=1,
    directory_id=UUID(int=1),
    incarnation=UUID(int=2),
    broker_epoch=0,
    host="h",
    port=9,
    executor_host="e",
)
FLIGHTS, OTHER = UUID(int=10), UUID(int=11)


def config(kind: ResourceType, resource: str, name: str, value: str | None) -> ConfigChanged:
    return ConfigChanged(resource_type=int(kind), resource_name=resource, name=name, value=value)


def an_image() -> ClusterImage:
    image = ClusterImage()
    image.replay_commit(
        1,
        (
            ClusterCreated(cluster_id="c", created_ms=5),
            ControllerChanged(controller_epoch=1, host="h", port=8),
        ),
    )
    image.replay_commit(
        2,
        (
            BrokerIdAssigned(broker_id=1),
            BrokerIdAssigned(broker_id=2),
            BrokerRegistered(broker=BROKER, clean=True),
            BrokerUnfenced(broker_id=1),
            TopicCreated(topic="flights", topic_id=FLIGHTS, partitions=(LED, LED)),
            TopicCreated(topic="other", topic_id=OTHER, partitions=(LED,)),
            config(ResourceType.TOPIC, "flights", "retention.ms", "1"),
            config(ResourceType.TOPIC, "other", "retention.ms", "2"),
            config(ResourceType.BROKER, "", "producer.id.expiration.ms", "3"),
            config(ResourceType.BROKER, "1", "producer.id.expiration.ms", "4"),
            ProducerIdsAllocated(broker_id=1, first_producer_id=0, count=1000),
        ),
    )
    return image


def test_an_image_is_the_sum_of_its_records() -> None:
    flights = TopicImage("flights", FLIGHTS, {0: LED, 1: LED})
    other = TopicImage("other", OTHER, {0: LED})
    assert an_image() == ClusterImage(
        version=2,
        cluster_id="c",
        created_ms=5,
        controller=ControllerImage(controller_epoch=1, host="h", port=8),
        next_producer_id=1000,
        brokers={1: replace(BROKER, fenced=False), 2: BrokerImage(broker_id=2)},
        topics={"flights": flights, "other": other},
        topics_by_id={FLIGHTS: flights, OTHER: other},
        configs={
            (ResourceType.TOPIC, "flights"): {"retention.ms": "1"},
            (ResourceType.TOPIC, "other"): {"retention.ms": "2"},
            (ResourceType.BROKER, ""): {"producer.id.expiration.ms": "3"},
            (ResourceType.BROKER, "1"): {"producer.id.expiration.ms": "4"},
        },
    )


def test_later_records_change_it() -> None:
    image = an_image()
    gone = replace(LED, isr=(), eligible=(1,), leader=-1, leader_epoch=1, partition_epoch=1)
    image.replay_commit(
        3,
        (
            BrokerFenced(broker_id=1, reason="silent"),
            PartitionChanged(topic="flights", partition=1, state=gone),
            PartitionsAdded(topic="flights", partitions=(gone,)),
            TopicDeleted(topic="other", topic_id=OTHER),
            BrokerRemoved(broker_id=2),
            config(ResourceType.TOPIC, "flights", "retention.ms", None),
        ),
    )
    flights = TopicImage("flights", FLIGHTS, {0: LED, 1: gone, 2: gone})
    assert image == ClusterImage(
        version=3,
        cluster_id="c",
        created_ms=5,
        controller=ControllerImage(controller_epoch=1, host="h", port=8),
        next_producer_id=1000,
        brokers={1: BROKER},
        topics={"flights": flights},
        topics_by_id={FLIGHTS: flights},
        configs={
            (ResourceType.BROKER, ""): {"producer.id.expiration.ms": "3"},
            (ResourceType.BROKER, "1"): {"producer.id.expiration.ms": "4"},
        },
    )
    image.check_invariants()


def test_a_deferred_replication_factor_lasts_until_it_is_reached_or_the_topic_deleted() -> None:
    image = an_image()
    for name in ("flights", "other"):
        image.replay(ReplicationFactorDeferred(topic=name, deferred=True))
    assert image.deferred_factors == {"flights", "other"}
    assert image.copy() == image
    image.replay(ReplicationFactorDeferred(topic="flights", deferred=False))
    image.replay(TopicDeleted(topic="other", topic_id=OTHER))
    assert image.deferred_factors == set()
    image.check_invariants()
    with pytest.raises(LookupError):
        image.replay(ReplicationFactorDeferred(topic="other", deferred=True))


def test_a_deleted_topic_is_known_until_the_remote_dir_has_nothing_of_it() -> None:
    image = an_image()
    image.replay(TopicDeleted(topic="other", topic_id=OTHER))
    image.replay(RemoteDeleteMarked(topic_id=OTHER, time_ms=5))
    assert image.remote_deletes == {OTHER: 5}
    assert image.copy() == image
    image.check_invariants()
    for _ in range(2):
        image.replay(RemoteDeleteFinished(topic_id=OTHER))
        assert image.remote_deletes == {}


def test_a_copy_is_equal_and_changes_on_its_own() -> None:
    image = an_image()
    copy = image.copy()
    assert copy == image
    copy.replay(PartitionsAdded(topic="flights", partitions=(LED,)))
    copy.replay(config(ResourceType.TOPIC, "flights", "retention.ms", None))
    assert image == an_image()


def test_queries() -> None:
    image = an_image()
    alive = replace(BROKER, fenced=False)
    assert image.alive_brokers() == [alive]
    assert (image.is_alive(1), image.is_alive(2), image.is_alive(3)) == (True, False, False)
    assert (image.broker(1), image.broker(3)) == (alive, None)
    assert alive.endpoint == Endpoint("h", 9)
    assert image.controller.endpoint == Endpoint("h", 8)
    assert image.topic("flights") is image.topic_by_id(FLIGHTS)
    assert (image.topic("none"), image.topic_by_id(UUID(int=99))) == (None, None)
    assert image.partition(TopicPartition("flights", 1)) == LED
    assert image.partition(TopicPartition("flights", 2)) is None
    assert image.partition(TopicPartition("none", 0)) is None
    flights = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
    everything = [(tp, LED) for tp in (*flights, TopicPartition("other", 0))]
    assert list(image.partitions_of(1).items()) == everything
    assert image.partitions_of(2) == {}
    assert image.topic_overrides("flights") == {"retention.ms": "1"}
    assert image.topic_overrides("none") == {}
    assert image.broker_overrides(1) == {"producer.id.expiration.ms": "4"}
    assert image.broker_overrides(2) == {"producer.id.expiration.ms": "3"}
    assert image.broker_overrides(None) == {"producer.id.expiration.ms": "3"}
