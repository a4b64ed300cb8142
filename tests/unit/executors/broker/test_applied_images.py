"""A broker that follows the image commit by commit has what the image gives it, and looks at no
more than what changed."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
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
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import ResourceType, TopicPartition
from tests.support.operations import count_operations

NODE, OTHER = 1, 2
TOPICS = ("a", "b")
FOREVER = 1_000_000
_ids = itertools.count(1)


def open_table(disk: MemoryBackend | None = None) -> ReplicaManager:
    log_dir = BrokerDir.take(
        disk or MemoryBackend(),
        "broker-1",
        cluster_id="c",
        node_id=NODE,
        new=True,
        new_id=UUID(int=1),
    )
    return ReplicaManager(
        node_id=NODE,
        log_dirs=LogDirs([log_dir]),
        settings={},
        counters=BrokerMetrics(),
        now_ms=lambda: 0,
        monotonic_ms=lambda: 0,
        random_bytes=bytes,
    )


def placed(broker_id: int) -> PartitionImage:
    chosen = (broker_id,)
    return PartitionImage(replicas=chosen, isr=chosen, last_known=chosen, leader=broker_id)


def created(topic: str, partitions: int, broker_id: int = NODE) -> TopicCreated:
    states = (placed(broker_id),) * partitions
    return TopicCreated(topic=topic, topic_id=UUID(int=next(_ids)), partitions=states)


def moved(image: ClusterImage, tp: TopicPartition, broker_id: int) -> PartitionChanged:
    before = image.partition(tp)
    assert before is not None
    epochs = {
        "leader_epoch": before.leader_epoch + 1,
        "partition_epoch": before.partition_epoch + 1,
    }
    return PartitionChanged(
        topic=tp.topic, partition=tp.partition, state=replace(placed(broker_id), **epochs)
    )


def configured(topic: str, value: str | None) -> ConfigChanged:
    return ConfigChanged(
        resource_type=int(ResourceType.TOPIC),
        resource_name=topic,
        name="retention.ms",
        value=value,
    )


def commit(image: ClusterImage, *records: Record) -> None:
    image.replay_commit(image.version + 1, records)


def check(replica_manager: ReplicaManager, image: ClusterImage, *, lead: bool) -> None:
    """The table has what the image says, as if it had looked at all of it."""
    expected = {
        tp: (topic.topic_id, state if lead else None, image.topic_overrides(tp.topic))
        for tp, state in image.partitions_of(NODE).items()
        if (topic := image.topic(tp.topic)) is not None
    }
    assert {
        p.topic_partition: (
            p.topic_id,
            p.state,
            {}
            if p.config.retention_ms == 604_800_000
            else {"retention.ms": str(p.config.retention_ms)},
        )
        for p in replica_manager
    } == expected


def changes(image: ClusterImage, draw: st.DrawFn) -> Iterator[Record]:
    topic = draw(st.sampled_from(TOPICS))
    known = image.topic(topic)
    if known is None:
        yield created(topic, draw(st.integers(1, 3)), draw(st.sampled_from((NODE, OTHER))))
        return
    match draw(st.sampled_from(("move", "move", "add", "configure", "delete", "make anew"))):
        case "move":
            number = draw(st.integers(0, len(known.partitions) - 1))
            yield moved(image, TopicPartition(topic, number), draw(st.sampled_from((NODE, OTHER))))
        case "add":
            yield PartitionsAdded(topic=topic, partitions=(placed(NODE), placed(OTHER)))
        case "configure":
            yield configured(topic, draw(st.sampled_from(("5", "6", None))))
        case "delete":
            yield TopicDeleted(topic=topic, topic_id=known.topic_id)
        case _:
            yield TopicDeleted(topic=topic, topic_id=known.topic_id)
            yield created(topic, 2)


@given(st.data())
def test_whatever_happens_it_has_what_the_image_gives_it(data: st.DataObject) -> None:
    async def follow() -> None:
        replica_manager, image = open_table(), ClusterImage()
        for _ in range(data.draw(st.integers(1, 8))):
            for _ in range(data.draw(st.integers(1, 3))):
                commit(image, *changes(image, data.draw))
            if data.draw(st.integers(0, 5)) == 0:  # it fell behind
                image = ClusterImage.from_snapshot(image.version, image.snapshot_records())
            lead = data.draw(st.integers(0, 4)) > 0
            await replica_manager.apply(image, lead=lead)
            if not lead:
                replica_manager.drop_roles()
            check(replica_manager, image, lead=lead)

    asyncio.run(follow())


def test_no_role_is_taken_where_the_disk_has_failed_during_the_truncation_of_torn_writes() -> None:
    async def follow() -> None:
        disk = MemoryBackend()
        replica_manager, image = open_table(disk), ClusterImage()
        commit(image, created("a", 1))
        await replica_manager.apply(image, lead=False)
        (partition,) = replica_manager

        async def truncate(truncated: Partition, leader_epoch: int) -> None:
            assert (truncated, leader_epoch) == (partition, 0)
            disk.faults.fail_next(FOREVER)
            replica_manager.report_error(
                partition.topic_partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            )
            await replica_manager.failures.disks_gone.wait()

        with patch.object(replica_manager.truncations, "truncate_torn_writes", truncate):
            await replica_manager.apply(image, lead=True)
        assert list(replica_manager.offline) == [partition.topic_partition]
        assert partition.state is None

    asyncio.run(follow())


def test_only_a_storage_error_of_a_request_makes_the_broker_check_the_disk() -> None:
    async def follow() -> None:
        disk = MemoryBackend()
        replica_manager, image = open_table(disk), ClusterImage()
        commit(image, created("a", 1))
        await replica_manager.apply(image, lead=False)
        (partition,) = replica_manager
        disk.faults.fail_next(FOREVER)
        for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
            assert replica_manager.log_dirs.working
            replica_manager.report_error(partition.topic_partition, KafkaError(code))
            await replica_manager.failures.disk_watch.close()
        assert not replica_manager.log_dirs.working

    asyncio.run(follow())


def test_what_changes_while_a_directory_is_deleted_is_left_to_the_next_image() -> None:
    async def follow() -> None:
        disk = MemoryBackend()
        replica_manager, image = open_table(disk), ClusterImage()
        commit(image, created("a", 1), created("b", 1))
        await replica_manager.apply(image, lead=True)
        disk.faults.fail_next(FOREVER, under="-offset-checkpoint")
        deleted = TopicDeleted(topic="a", topic_id=image.topics["a"].topic_id)
        commit(image, deleted, created("a", 1))
        await replica_manager.apply(image, lead=True)
        assert [str(partition.topic_partition) for partition in replica_manager] == ["b-0"]
        disk.faults.clear()
        remove_one = replica_manager.strays.remove_one

        async def remove(tp: TopicPartition, topic_id: UUID) -> None:
            assert str(tp) == "a-0"
            commit(image, moved(image, TopicPartition("b", 0), NODE))
            await remove_one(tp, topic_id)

        with patch.object(replica_manager.strays, "remove_one", remove):
            assert not await replica_manager.open_again()
        (other,) = replica_manager
        assert other.state is not None
        assert other.state.leader_epoch == 0
        assert not await replica_manager.open_again(), (
            "whoever applies an image knows whether it may lead"
        )
        await replica_manager.apply(image, lead=True)
        check(replica_manager, image, lead=True)
        assert not await replica_manager.open_again()

    asyncio.run(follow())


def test_applying_a_commit_costs_what_it_changed_however_many_partitions_there_are() -> None:
    async def cost(partitions: int) -> int:
        replica_manager, image = open_table(), ClusterImage()
        commit(image, created("a", partitions), created("b", 1))
        await replica_manager.apply(image, lead=True)
        commit(image, moved(image, TopicPartition("b", 0), NODE))
        applying = replica_manager.apply(image, lead=True)
        return count_operations(lambda: next(applying.__await__(), None))

    few, many = asyncio.run(cost(10)), asyncio.run(cost(500))
    assert 0 < many <= few * 1.1, (few, many)
