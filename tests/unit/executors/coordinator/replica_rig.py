"""A ReplicaManager on a memory disk, whose images the test makes itself."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from sparklog.executors.log_dirs import LogDirs, lock_log_dirs, open_data_dirs
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import BrokerMetrics, ReplicaManager
from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ClusterImage,
    PartitionChanged,
    PartitionImage,
    Record,
    TopicCreated,
    TopicDeleted,
)
from sparklog.runtime_environment import SYSTEM
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.types import TopicPartition

NODE = 1
OTHER = 2
_disks = itertools.count(1)
_topic_ids = itertools.count(1)


class ReplicaRig:
    """Broker 1; broker 2 lives, but only in the image."""

    def __init__(self, log_dirs: LogDirs, disk_name: str) -> None:
        self.disk = named_disk(disk_name)
        self.image = ClusterImage()
        self.image.replay(ClusterCreated(cluster_id="c", created_ms=0))
        for number in (NODE, OTHER):
            broker = BrokerImage(
                broker_id=number,
                directory_id=UUID(int=number),
                broker_epoch=number,
                host=f"host{number}",
                port=9000 + number,
            )
            self.image.replay(BrokerRegistered(broker=broker, clean=True))
            self.image.replay(BrokerUnfenced(broker_id=number))
        self.replica_manager = ReplicaManager(
            node_id=NODE,
            log_dirs=log_dirs,
            settings={},
            counters=BrokerMetrics(),
            now_ms=SYSTEM.wall_ms,
            monotonic_ms=SYSTEM.monotonic_ms,
            random_bytes=SYSTEM.random_bytes,
        )

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["ReplicaRig"]:
        name = f"replica-rig-{next(_disks)}"
        log_dirs = lock_log_dirs(
            open_data_dirs((f"memory://{name}/data",), 0),
            "broker-1",
            cluster_id="c",
            node_id=NODE,
            new=True,
            new_id=SYSTEM.new_id,
        )
        try:
            yield cls(log_dirs, name)
        finally:
            log_dirs.release()
            forget_disk(name)

    async def change(self, *records: Record, lead: bool = True) -> None:
        """Commit records and apply the image."""
        self.image.replay_commit(self.image.version + 1, records)
        await self.replica_manager.apply(self.image, lead=lead)

    async def create(self, topic: str, *states: PartitionImage) -> None:
        topic_id = UUID(int=1000 + next(_topic_ids))
        await self.change(TopicCreated(topic=topic, topic_id=topic_id, partitions=states))

    async def delete(self, topic: str) -> None:
        topic_id = self.image.topics[topic].topic_id
        await self.change(TopicDeleted(topic=topic, topic_id=topic_id))

    async def set_state(self, topic: str, number: int, state: PartitionImage) -> None:
        await self.change(PartitionChanged(topic=topic, partition=number, state=state))

    def partition(self, topic: str, number: int = 0) -> Partition:
        return self.replica_manager.find(topic, number)

    def replicate(self, topic: str, number: int = 0) -> None:
        """Broker 2 has fetched everything."""
        partition = self.partition(topic, number)
        end = partition.log.log_end_offset
        self.replica_manager.carry_out(partition.update_follower_fetch_state(OTHER, end))

    def damage(self, tp: TopicPartition) -> None:
        """Change the last byte of the log of a partition."""
        files = MemoryBackend(self.disk, "data").files(".log")
        (node,) = [node for path, node in files if f"/{tp}/" in path]
        node.damage(len(node.data) - 1, 0xA5)


def led(epoch: int = 1, *, isr: tuple[int, ...] = (NODE,), leader: int = NODE) -> PartitionImage:
    """The state of a partition with replicas on both brokers, if both are named in the ISR."""
    return PartitionImage(
        replicas=(NODE, OTHER) if OTHER in isr or leader == OTHER else (NODE,),
        isr=isr,
        last_known=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
    )
