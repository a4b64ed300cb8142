"""What brokers hold of their partitions, seen from outside: off their memory and their disks.

Owns: reading without being noticed, no operation on a disk and no draw from a seed.  Must not know
what replicas ought to hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

from sparklog.executors.controller_link.lifecycle import BrokerLifecycle
from sparklog.executors.handlers import delete_records
from sparklog.executors.partition import Effect
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.metadata import ClusterImage
from sparklog.types import NO_NODE, NO_OFFSET, TopicPartition
from sparklog.wire.protocol.private import BrokerHeartbeatResponse
from sparklog.wire.records.batch import Buffer
from tests.simulation.events import (
    DeletionDone,
    HighWatermarkSeen,
    ImageTaken,
    LogId,
    LogStartTold,
    MayStop,
    ReplicaEnd,
    ReplicaSeen,
    ReplicasOffline,
    StopAsked,
)
from tests.simulation.hosts import BrokerHost
from tests.simulation.workloads import platter
from tests.simulation.workloads.scene import Scene

#: Virtual seconds between two looks.
EVERY_S = 1.5


async def run(scene: Scene) -> None:
    """Look now and then, until the run is over."""
    while not scene.over:
        await scene.world.sleep(EVERY_S)
        for seen in replicas(scene):
            scene.history.record(seen)


def replicas(scene: Scene) -> Iterator[ReplicaSeen]:
    """Every replica that works, of every broker that serves."""
    for broker_id, host in scene.world.brokers.items():
        if host.broker is None:
            continue
        for partition in host.broker.replica_manager:
            log = partition.log
            if log.offline is None and not log.truncating:  # a cut is done file by file
                yield _seen(broker_id, host, partition)


@contextmanager
def high_watermarks(scene: Scene) -> Iterator[None]:
    """Meanwhile every step of a leader's high watermark is an event."""
    real = Partition.move_high_watermark

    def move_high_watermark(self: Partition, reached: int) -> list[Effect]:
        if self.is_leader and reached > self.high_watermark:
            _look_at(scene, self, reached)
        return real(self, reached)

    with patch.object(Partition, "move_high_watermark", move_high_watermark):
        yield


@contextmanager
def stops(scene: Scene) -> Iterator[None]:
    """Meanwhile what brokers that want to stop are told is an event."""
    real = BrokerLifecycle.prepare_stop

    async def prepare_stop(self: BrokerLifecycle) -> bool:
        broker_id = self._identity.broker_id if self._identity is not None else NO_NODE
        scene.history.record(StopAsked(broker=broker_id))
        may_stop = await real(self)
        if may_stop:
            scene.history.record(MayStop(broker=broker_id))
        return may_stop

    with patch.object(BrokerLifecycle, "prepare_stop", prepare_stop):
        yield


@contextmanager
def offline_replicas(scene: Scene) -> Iterator[None]:
    """Meanwhile it is an event when the replicas change that a broker tells to be offline."""
    real, real_register = BrokerLifecycle._beat, BrokerLifecycle._register_once
    told: dict[UUID, tuple[LogId, ...]] = {}

    def tell(self: BrokerLifecycle) -> None:
        assert self._identity is not None
        named = ((self.image.topic_by_id(one.topic_id), one) for one in self.offline_replicas())
        logs = tuple(
            LogId(topic.name, topic.topic_id, one.partition)
            for topic, one in named
            if topic is not None
        )
        incarnation = self._identity.incarnation
        if logs != told.get(incarnation, ()):
            told[incarnation] = logs
            scene.history.record(
                ReplicasOffline(broker=self._identity.broker_id, logs=logs, incarnation=incarnation)
            )

    async def beat(self: BrokerLifecycle, *, has_stopped: bool = False) -> BrokerHeartbeatResponse:
        tell(self)
        return await real(self, has_stopped=has_stopped)

    async def register(self: BrokerLifecycle) -> None:
        tell(self)
        await real_register(self)

    with (
        patch.object(BrokerLifecycle, "_beat", beat),
        patch.object(BrokerLifecycle, "_register_once", register),
    ):
        yield


@contextmanager
def images(scene: Scene) -> Iterator[None]:
    """Meanwhile it is an event when a broker's partitions are as an image has them."""
    real = ReplicaManager.apply

    async def apply(self: ReplicaManager, image: ClusterImage, *, lead: bool) -> None:
        await real(self, image, lead=lead)
        if lead:
            scene.history.record(ImageTaken(broker=self.node_id, version=image.version))

    with patch.object(ReplicaManager, "apply", apply):
        yield


@contextmanager
def deletions(scene: Scene) -> Iterator[None]:
    """Meanwhile it is an event when a leader takes a deletion for done, and when a follower hears
    that its leader's log starts later."""
    real_done, real_append = delete_records._is_done, Partition.append_as_follower

    def is_done(replica_manager: ReplicaManager, deletion: delete_records._Deletion) -> bool:
        done = real_done(replica_manager, deletion)
        led = replica_manager.get(deletion.topic_partition)
        if done and led is not None and deletion.result.low_watermark != NO_OFFSET:
            scene.history.record(
                DeletionDone(
                    broker=replica_manager.node_id,
                    log=log_of(led),
                    version=replica_manager.image.version,
                    low_watermark=deletion.result.low_watermark,
                )
            )
        return done

    def append_as_follower(
        self: Partition, records: Buffer, *, fetch_offset: int, leader_epoch: int,
        high_watermark: int, log_start_offset: int, now_ms: int,
    ) -> list[Effect]:  # fmt: skip
        log = self.log
        is_late = log.offline is not None or log.truncating or self.is_leader
        is_late |= self.leader_epoch != leader_epoch or fetch_offset != log.log_end_offset
        is_news = log_start_offset > log.log_start_offset
        effects = real_append(
            self, records, fetch_offset=fetch_offset, leader_epoch=leader_epoch,
            high_watermark=high_watermark, log_start_offset=log_start_offset, now_ms=now_ms,
        )  # fmt: skip
        if is_news and not is_late:
            told = min(log_start_offset, high_watermark, log.log_end_offset)
            scene.history.record(
                LogStartTold(broker=self.node_id, log=log_of(self), log_start=told)
            )
        return effects

    with (
        patch.object(delete_records, "_is_done", is_done),
        patch.object(Partition, "append_as_follower", append_as_follower),
    ):
        yield


def high_watermark(scene: Scene, topic_partition: TopicPartition, leader: int) -> None:
    """Look at it where this broker leads."""
    host = scene.world.brokers.get(leader)
    led = (
        host.broker.replica_manager.get(topic_partition)
        if host is not None and host.broker
        else None
    )
    if led is not None and led.is_leader:
        _look_at(scene, led, led.high_watermark)


def log_of(partition: Partition) -> LogId:
    tp = partition.topic_partition
    return LogId(tp.topic, partition.topic_id, tp.partition)


def _look_at(scene: Scene, led: Partition, high_watermark: int) -> None:
    scene.history.record(
        HighWatermarkSeen(
            log=log_of(led),
            broker=led.node_id,
            leader_epoch=led.leader_epoch,
            high_watermark=high_watermark,
            ends=tuple(_ends(scene, led)),
        )
    )


def _ends(scene: Scene, led: Partition) -> Iterator[ReplicaEnd]:
    for broker_id, host in scene.world.brokers.items():
        broker = host.broker or host.remains
        one = broker.replica_manager.get(led.topic_partition) if broker is not None else None
        if broker_id == led.node_id:
            one = led  # of a process that has just begun, perhaps, beside the remains of another
        if one is not None and one.topic_id == led.topic_id:
            log = one.log
            if log.offline is None and not log.truncating:
                end = flushed = log.log_end_offset
                if host.broker is not None and one.config.flush_messages == 1:
                    disk = host.disk.backend.disk
                    flushed = platter.safe_end(disk, broker_id, led.topic_partition, end)
                yield ReplicaEnd(broker_id, end, flushed)


def _seen(broker_id: int, host: BrokerHost, partition: Partition) -> ReplicaSeen:
    tp, log = partition.topic_partition, partition.log
    start, end = log.local_log_start_offset, log.log_end_offset
    found = platter.batches(host.disk.backend.disk, broker_id, tp)
    return ReplicaSeen(
        broker=broker_id,
        log=log_of(partition),
        leads=partition.is_leader,
        leader_epoch=partition.leader_epoch,
        start=log.log_start_offset,
        local_start=start,
        high_watermark=partition.high_watermark,
        batches=tuple(b for b in found if b.next_offset > start and b.base_offset < end),
    )
