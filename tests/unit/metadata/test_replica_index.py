"""An image knows each broker's partitions, and those that the last commits touched, by indexes."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.metadata import (
    ClusterImage,
    ConfigChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    Record,
    TopicCreated,
    TopicDeleted,
)
from sparklog.metadata.change_history import TOUCHED_MAX, ChangeHistory
from sparklog.types import NO_NODE, ResourceType, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def led(leader: int, *others: int) -> PartitionImage:
    replicas = (leader, *others)
    return PartitionImage(replicas=replicas, isr=replicas, last_known=replicas, leader=leader)


def created(topic: str, *partitions: PartitionImage) -> TopicCreated:
    return TopicCreated(
        topic=topic, topic_id=UUID(bytes=topic.encode() * 16), partitions=partitions
    )


def deleted(topic: str) -> TopicDeleted:
    return TopicDeleted(topic=topic, topic_id=UUID(bytes=topic.encode() * 16))


def changed(tp: TopicPartition, state: PartitionImage) -> PartitionChanged:
    return PartitionChanged(topic=tp.topic, partition=tp.partition, state=state)


def configured(kind: ResourceType, name: str) -> ConfigChanged:
    return ConfigChanged(
        resource_type=int(kind), resource_name=name, name="retention.ms", value="1"
    )


def commit(image: ClusterImage, *records: Record) -> None:
    image.replay_commit(image.version + 1, records)
    image.check_invariants()


def an_image() -> ClusterImage:
    image = ClusterImage()
    commit(image, created("a", led(1, 2), led(2, 1)), created("b", led(3, 1)))
    return image


# -- by broker


def test_each_broker_has_its_partitions() -> None:
    image = an_image()
    assert image.partition_count == 3
    assert image.partitions_of(1) == {A0: led(1, 2), A1: led(2, 1), B0: led(3, 1)}
    assert image.partitions_of(3) == {B0: led(3, 1)}
    assert image.partitions_of(9) == {}
    assert image.partitions_led_by(1) == {A0: led(1, 2)}
    assert image.partitions_led_by(NO_NODE) == {}


def test_it_follows_every_change() -> None:
    image = an_image()
    offline = replace(led(1, 2), isr=(), eligible=(1,), last_known=(1,), leader=NO_NODE)
    commit(image, changed(A0, offline), changed(A1, led(3, 4)), deleted("b"))
    commit(image, PartitionsAdded(topic="a", partitions=(led(4),)))
    a2 = TopicPartition("a", 2)
    assert image.partition_count == 3
    assert image.partitions_of(1) == {A0: offline}
    assert image.partitions_of(2) == {A0: offline}
    assert image.partitions_of(3) == {A1: led(3, 4)}
    assert image.partitions_of(4) == {A1: led(3, 4), a2: led(4)}
    assert image.partitions_led_by(1) == {}
    assert image.partitions_led_by(3) == {A1: led(3, 4)}
    assert image.partitions_led_by(NO_NODE) == {A0: offline}


def test_a_topic_that_comes_back_is_counted_once() -> None:
    image = an_image()
    commit(image, deleted("b"), created("b", led(1)))
    assert image.partitions_of(3) == {}
    assert image.partitions_led_by(1) == {A0: led(1, 2), B0: led(1)}


# -- what was touched


def test_who_follows_learns_what_was_touched_since() -> None:
    image = an_image()
    commit(image, changed(A0, led(2, 1)))
    commit(image, configured(ResourceType.TOPIC, "b"), changed(A0, led(1, 2)))
    commit(image, configured(ResourceType.BROKER, ""), deleted("b"))
    assert image.touched_after(4) == []
    assert image.touched_after(3) == [B0]
    assert sorted(image.touched_after(2) or ()) == [A0, B0]
    assert sorted(image.touched_after(0) or ()) == [A0, A1, B0]


def test_added_partitions_do_not_touch_their_topic() -> None:
    image = an_image()
    commit(image, PartitionsAdded(topic="a", partitions=(led(4),)))
    assert image.touched_after(1) == [TopicPartition("a", 2)]


def test_a_snapshot_says_nothing_of_what_came_before_it() -> None:
    image = ClusterImage.from_snapshot(7, an_image().snapshot_records())
    assert image.touched_after(6) is None
    assert image.touched_after(7) == []
    commit(image, changed(A0, led(2, 1)))
    assert image.touched_after(7) == [A0]


def test_an_image_that_runs_ahead_of_its_version_answers_for_what_it_replayed() -> None:
    image = an_image()
    image.replay(changed(A0, led(2, 1)))
    assert image.touched_after(image.version) == [A0]


def test_the_history_is_limited() -> None:
    history = ChangeHistory()
    many = [TopicPartition("t", number) for number in range(TOUCHED_MAX)]
    history.touch(1, many)
    assert (history.after(0), len(history.after(0) or ())) == (many[::-1], TOUCHED_MAX)
    history.touch(2, [A0])
    assert history.after(0) is None
    assert history.after(1) == [A0]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8), st.integers(0, 8))
def test_what_it_answers_is_what_was_touched(commits: list[list[int]], since: int) -> None:
    history = ChangeHistory()
    for version, numbers in enumerate(commits, start=1):
        history.touch(version, [TopicPartition("t", number) for number in numbers])
    expected = {number for numbers in commits[since:] for number in numbers}
    found = history.after(since) or []
    assert sorted(tp.partition for tp in found) == sorted(expected)
