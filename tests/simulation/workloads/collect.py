"""What is left at the end of a run, for the checkers.

Owns: where each part of it is found: logs through a client, all else in memory and on the disks.
Must not know what it should be.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from disk import HostDisk
from final_state import FinalBatch, FinalLog, FinalState, JournalCommit, NodeImage
from history import LogId

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.raw import RawClient
from sparklog.errors import DecodeError, SparklogError
from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.executors.partition_folders import parse_folder
from sparklog.metadata.records import from_json
from sparklog.types import OffsetSpec
from sparklog.wire.batch import iter_batches
from sparklog.wire.builder import iter_records
from workloads import observe
from workloads.consume import tp_of
from workloads.scene import Scene

READ_TIMEOUT_S = 60.0


async def collect(scene: Scene, name: str) -> FinalState:
    """Everything that is left, the logs as a client reads them."""
    async with await scene.world.cluster_client(name) as cluster:
        logs = {log: await _read_all(cluster, log) for log in scene.logs}
    return FinalState(
        logs=logs,
        replicas=tuple(seen for seen in observe.replicas(scene) if seen.log in logs),
        journal=_journal(scene),
        images=tuple(_images(scene)),
        folders={id_: _folders(host.disk, id_) for id_, host in scene.world.brokers.items()},
    )


async def _read_all(cluster: ClusterClient, log: LogId) -> FinalLog:
    raw, tp = RawClient(cluster), tp_of(log)
    batches: list[FinalBatch] = []
    start = end = 0
    try:
        await cluster.topic(log.topic, Deadline(READ_TIMEOUT_S))
        start = await _list(raw, log, OffsetSpec.EARLIEST)
        end = await _list(raw, log, OffsetSpec.LATEST)
        offset = start
        while offset < end:
            answer = await raw.fetch(tp, offset, max_bytes=1 << 20, timeout_s=READ_TIMEOUT_S)
            found = _batches(answer.records)
            if not found:
                damage = f"nothing at offset {offset}"
                return FinalLog(start=start, end=end, batches=tuple(batches), damage=damage)
            batches += found
            offset = found[-1].next_offset
    except (SparklogError, DecodeError) as error:
        return FinalLog(start=start, end=end, batches=tuple(batches), damage=str(error))
    return FinalLog(start=start, end=end, batches=tuple(batches))


async def _list(raw: RawClient, log: LogId, spec: OffsetSpec) -> int:
    tp = tp_of(log)
    found = await raw.list_offsets({tp: int(spec)}, timeout_s=READ_TIMEOUT_S)
    return found[tp].offset


def _batches(data: memoryview) -> list[FinalBatch]:
    return [
        FinalBatch(
            base_offset=header.base_offset,
            values=tuple(record.value for record in iter_records(data, start, header)),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        for header, start in iter_batches(data, partial_tail=True)
    ]


def _journal(scene: Scene) -> tuple[JournalCommit, ...]:
    """The commits in their order; runs are too short for a journal that is pruned."""
    backend = scene.world.control.disk.backend
    names = [name for name in backend.list("") if name[:1].isdigit()]
    return tuple(_commit(json.loads(backend.read(name))) for name in names)


def _commit(document: dict[str, Any]) -> JournalCommit:
    return JournalCommit(
        number=document["version"],
        controller_epoch=document["controller_epoch"],
        nonce=document["nonce"],
        records=tuple(map(from_json, document["records"])),
    )


def _images(scene: Scene) -> Iterator[NodeImage]:
    """Of every controller and broker that ever served, living and dead."""
    for control in scene.control_planes:
        if hasattr(control, "_committer"):
            yield NodeImage(node="a controller", image=control.image)
    for broker in scene.brokers:
        name = f"broker {broker.options.broker_id}"
        yield NodeImage(node=name, image=broker._registration.image)


def _folders(disk: HostDisk, broker_id: int) -> dict[str, UUID | None]:
    """Folders of partitions, and the topic that each says it belongs to."""
    backend, root = disk.backend, f"broker-{broker_id}"
    found: dict[str, UUID | None] = {}
    for name in backend.list(root):
        if parse_folder(name) is not None and backend.is_folder(f"{root}/{name}"):
            metadata = f"{root}/{name}/partition.metadata"
            whole = backend.exists(metadata)
            found[name] = decode_partition_metadata(backend.read(metadata)) if whole else None
    return found
