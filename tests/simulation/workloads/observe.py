"""What brokers hold of their partitions, seen from outside: off their memory and their disks.

Owns: reading without being noticed, no operation on a disk and no draw from a seed.  Must not know
what replicas ought to hold.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

from history import LogId, ReplicaSeen, SeenBatch
from hosts import BrokerHost

from sparklog.executors.partition import Partition
from workloads.scene import Scene

#: Virtual seconds between two looks.
EVERY_S = 1.5
#: Of a batch: its base offset, its length behind these two, and its last offset delta.
_HEAD = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23


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
        for partition in host.broker.table:
            if partition.log.offline is None:
                yield _seen(broker_id, host, partition)


def _seen(broker_id: int, host: BrokerHost, partition: Partition) -> ReplicaSeen:
    tp, log = partition.topic_partition, partition.log
    prefix = f"broker-{broker_id}/{tp.topic}-{tp.partition}/"
    files = [
        node.data
        for path, node in host.disk.backend.files(".log")
        if path.removeprefix("/").startswith(prefix)
    ]
    start, end = log.log_start_offset, log.log_end_offset
    return ReplicaSeen(
        broker=broker_id,
        log=LogId(tp.topic, partition.topic_id, tp.partition),
        leads=partition.is_leader,
        leader_epoch=partition.leader_epoch,
        start=start,
        high_watermark=partition.high_watermark,
        batches=tuple(b for b in _batches(files) if b.next_offset > start and b.base_offset < end),
    )


def _batches(files: Iterable[bytearray]) -> Iterator[SeenBatch]:
    for data in files:
        at = 0
        while at + _HEAD.size <= len(data):
            base_offset, length = _HEAD.unpack_from(data, at)
            stop = at + _HEAD.size + length
            if length <= 0 or stop > len(data):
                break  # being written, or cut off by whoever recovers it
            next_offset = base_offset + _LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)[0] + 1
            yield SeenBatch(base_offset, next_offset, zlib.crc32(data[at:stop]))
            at = stop
