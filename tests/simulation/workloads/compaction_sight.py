"""What brokers hold of compacted partitions, seen from outside: committed records and copies.

Owns: reading without being noticed, no operation on a disk and no draw from a seed.  Must not know
what a cleaning ought to leave.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sparklog.executors.partition import Effect
from sparklog.executors.partition.partition import Partition
from sparklog.metadata import PartitionImage
from sparklog.types import NO_PRODUCER_ID
from sparklog.wire.records.builder import iter_records
from sparklog.wire.records.control import ControlType, read_marker
from tests.simulation.compaction_events import (
    CommittedMarker,
    CommittedRecord,
    CompactedReplica,
    LeaderBegan,
    RecordsCommitted,
)
from tests.simulation.events import LogId
from tests.simulation.keyed_records import text_of
from tests.simulation.workloads import platter
from tests.simulation.workloads.scene import Scene

#: Virtual seconds between two looks at the copies.
EVERY_S = 1.0


async def run(scene: Scene) -> None:
    """Look at the copies now and then, until the run is over."""
    while not scene.over:
        await scene.world.sleep(EVERY_S)
        look(scene)


def look(scene: Scene) -> None:
    """Write down every copy that works, of every broker that serves."""
    for broker_id, host in scene.world.brokers.items():
        for partition in host.broker.replica_manager if host.broker is not None else ():
            tp, log = partition.topic_partition, partition.log
            named = LogId(tp.topic, partition.topic_id, tp.partition)
            if not scene.compacts(named) or log.offline is not None or log.truncating:
                continue
            found = [
                each
                for each in _records(scene, partition, 0, partition.high_watermark)
                if isinstance(each, CommittedRecord) and each.offset >= log.log_start_offset
            ]
            scene.history.record(
                CompactedReplica(
                    broker=broker_id,
                    log=named,
                    start=log.log_start_offset,
                    high_watermark=partition.high_watermark,
                    records=tuple((each.offset, each.text) for each in found),
                )
            )


@contextmanager
def committed(scene: Scene) -> Iterator[None]:
    """Meanwhile it is an event when a broker begins to lead, and when records are committed."""
    real, real_role = Partition.move_high_watermark, Partition.make_leader_or_follower

    def move_high_watermark(self: Partition, reached: int) -> list[Effect]:
        log = _log_of(self)
        if self.is_leader and reached > self.high_watermark and scene.compacts(log):
            scene.history.record(
                RecordsCommitted(
                    log=log,
                    broker=self.node_id,
                    leader_epoch=self.leader_epoch,
                    begin=self.high_watermark,
                    end=reached,
                    records=tuple(_records(scene, self, self.high_watermark, reached)),
                )
            )
        return real(self, reached)

    def make_leader_or_follower(
        self: Partition, state: PartitionImage, now_ms: int
    ) -> list[Effect]:
        if state.leader == self.node_id and not (
            self.is_leader and self.leader_epoch == state.leader_epoch
        ):
            log = _log_of(self)
            if scene.compacts(log) and self.log.offline is None and not self.log.truncating:
                end = self.log.log_end_offset
                scene.history.record(
                    LeaderBegan(
                        log=log, broker=self.node_id, leader_epoch=state.leader_epoch, log_end=end
                    )
                )
        return real_role(self, state, now_ms)

    with (
        patch.object(Partition, "move_high_watermark", move_high_watermark),
        patch.object(Partition, "make_leader_or_follower", make_leader_or_follower),
    ):
        yield


def _log_of(partition: Partition) -> LogId:
    tp = partition.topic_partition
    return LogId(tp.topic, partition.topic_id, tp.partition)


def _records(
    scene: Scene, partition: Partition, begin: int, end: int
) -> Iterator[CommittedRecord | CommittedMarker]:
    """Records and markers of one broker's copy, [begin, end)."""
    host = scene.world.brokers[partition.node_id]
    batches = platter.whole_batches(
        host.disk.backend.disk, partition.node_id, partition.topic_partition, begin
    )
    for data, header in batches:
        if header.base_offset >= end:
            return
        if header.is_control:
            marker = read_marker(data, 0, header)
            if marker is not None:
                yield CommittedMarker(
                    header.base_offset,
                    header.producer_id,
                    marker.control_type is ControlType.COMMIT,
                )
            continue
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in iter_records(data, 0, header):
            if begin <= record.offset < end:
                yield CommittedRecord(record.offset, text_of(record), record.timestamp, producer_id)
