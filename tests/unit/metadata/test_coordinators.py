"""Keys belong to the partitions that Kafka's own tools compute."""

from uuid import UUID

import pytest

from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterImage,
    PartitionImage,
    TopicCreated,
)
from sparklog.metadata.coordinators import (
    coordinator_partition,
    find_coordinator,
    java_string_hash,
    partition_for,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-group", -1906497762),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),  # Math.abs would stay negative
        ("\u00e9", 233),
        ("\U0001f600", 1772899),  # two units of UTF-16
    ],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected % 2**32


def test_the_smallest_hash_belongs_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("", 50) == 0


def test_the_leader_of_the_partition_coordinates() -> None:
    image = ClusterImage()
    for number in (1, 2):
        broker = BrokerImage(broker_id=number, directory_id=UUID(int=number))
        image.replay(BrokerRegistered(broker=broker, clean=True))
    image.replay(BrokerUnfenced(broker_id=1))
    assert coordinator_partition(image, "__consumer_offsets", "a") is None
    assert find_coordinator(image, "__consumer_offsets", "a") is None
    states = tuple(
        PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader) for leader in (1, 2, -1)
    )
    image.replay(TopicCreated(topic="__consumer_offsets", topic_id=UUID(int=9), partitions=states))
    keys = ("c", "a", "b")  # of the hashes 99, 97 and 98
    assert [coordinator_partition(image, "__consumer_offsets", key) for key in keys] == [0, 1, 2]
    found = [find_coordinator(image, "__consumer_offsets", key) for key in keys]
    assert [broker and broker.broker_id for broker in found] == [1, None, None]
