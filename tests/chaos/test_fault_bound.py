"""The bound of damage: who else is in the ISR, and who of them is whole."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from sparklog.metadata import (
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    ClusterImage,
    ConfigChanged,
    PartitionChanged,
    PartitionImage,
    TopicCreated,
)
from sparklog.types import ResourceType
from tests.chaos.fault_bound import FaultBound

MIN_ISR = ConfigChanged(
    resource_type=ResourceType.TOPIC, resource_name="t", name="min.insync.replicas", value="2"
)


def partition(*isr: int) -> PartitionImage:
    return PartitionImage(replicas=(1, 2, 3), isr=isr, last_known=isr, leader=isr[0])


def registered(broker_id: int, epoch: int) -> BrokerRegistered:
    broker = BrokerImage(broker_id=broker_id, directory_id=UUID(int=epoch), broker_epoch=epoch)
    return BrokerRegistered(broker=broker, clean=False)


@pytest.fixture
def image() -> ClusterImage:
    return image_of([MIN_ISR])


def image_of(configs: Sequence[ConfigChanged]) -> ClusterImage:
    whole = ClusterImage()
    whole.replay_commit(1, [BrokerIdAssigned(broker_id=id_) for id_ in (1, 2, 3)])
    whole.replay_commit(2, [registered(id_, 2) for id_ in (1, 2, 3)])
    topic = TopicCreated(topic="t", topic_id=UUID(int=1), partitions=(partition(1, 2, 3),) * 2)
    whole.replay_commit(3, [topic, *configs])
    return whole


def change(image: ClusterImage, *records: object) -> None:
    image.replay_commit(image.version + 1, records)  # type: ignore[arg-type]


def test_a_broker_may_lose_its_disk_while_enough_others_are_in_sync(image: ClusterImage) -> None:
    assert [FaultBound(1).reason_against(image, victim) for victim in (1, 2, 3)] == ["", "", ""]


def test_one_partition_with_too_few_others_protects_every_one_of_them(image: ClusterImage) -> None:
    change(image, PartitionChanged(topic="t", partition=1, state=partition(1, 2)))
    bound = FaultBound(1)
    assert bound.reason_against(image, 1) == "t-1 has only [2] besides broker 1 in its ISR"
    assert bound.reason_against(image, 2) == "t-1 has only [1] besides broker 2 in its ISR"
    assert bound.reason_against(image, 3) == ""
    assert bound.reason_against(image, 3, [3, 1]) == "t-0 has only [2] besides broker 3 in its ISR"


def test_a_topic_without_a_setting_has_that_of_the_brokers() -> None:
    image = image_of([])
    assert FaultBound(2).reason_against(image, 1) == ""
    assert FaultBound(3).reason_against(image, 1) == (
        "t-0 has only [2, 3] besides broker 1 in its ISR"
    )


def test_a_damaged_member_does_not_count_before_it_has_registered_anew(
    image: ClusterImage,
) -> None:
    bound = FaultBound(1)
    bound.note_damage(image, 2)
    assert bound.reason_against(image, 1) == "t-0 has only [3] besides broker 1 in its ISR"
    assert bound.reason_against(image, 2) == ""
    change(image, registered(2, 9))
    assert bound.reason_against(image, 1) == ""


def test_a_broker_without_replicas_has_nothing_to_lose(image: ClusterImage) -> None:
    change(image, BrokerIdAssigned(broker_id=4))
    assert FaultBound(1).reason_against(image, 4) == ""
