"""What is left at the end of a run, for the checkers.

Owns: where each part of it is found: logs through a client, all else in memory and on the disks.
Must not know what it should be.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.executors.log_dirs.partition_dirs import parse_partition_dir
from sparklog.metadata.records import from_json
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.disk import HostDisk
from tests.simulation.final_state import FinalState, JournalCommit, NodeImage
from tests.simulation.log_reading import read_log
from tests.simulation.workloads import observe, tier_sight
from tests.simulation.workloads.committed_readers import read_committed_log
from tests.simulation.workloads.scene import Scene


async def collect(scene: Scene, name: str) -> FinalState:
    """Everything that is left, the logs as a client reads them."""
    async with await scene.world.cluster_client(name) as cluster:
        logs = {log: await read_log(cluster, log) for log in scene.logs}
        committed = {log: await read_committed_log(cluster, log) for log in scene.transaction_logs}
    whole = logs.keys() | committed.keys()
    bucket = scene.world.bucket
    names = (CONSUMER_OFFSETS, TRANSACTION_STATE) if scene.transactional else ()
    return FinalState(
        logs=logs,
        committed_logs=committed,
        compacted_logs=tuple(scene.compacted_logs),
        cleaned_logs=tuple(scene.coordinator_logs(*names)),
        replicas=tuple(seen for seen in observe.replicas(scene) if seen.log in whole),
        journal=_journal(scene),
        images=tuple(_images(scene)),
        tiered_replicas=tuple(tier_sight.replicas(scene)),
        remote_objects={} if bucket is None else {p: len(d) for p, d in bucket.objects().items()},
        delete_delay_ms=int(scene.world.settings.get("remote.object.delete.delay.ms", 0)),
        partition_dirs={
            id_: _partition_dirs(host.disk, id_) for id_, host in scene.world.brokers.items()
        },
    )


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
        yield NodeImage(node=name, image=broker._lifecycle.image)


def _partition_dirs(disk: HostDisk, broker_id: int) -> dict[str, UUID | None]:
    """Partition directories, and the topic that each says it belongs to."""
    backend, root = disk.backend, f"broker-{broker_id}"
    found: dict[str, UUID | None] = {}
    for name in backend.list(root):
        if parse_partition_dir(name) is not None and backend.is_folder(f"{root}/{name}"):
            metadata = f"{root}/{name}/partition.metadata"
            whole = backend.exists(metadata)
            found[name] = decode_partition_metadata(backend.read(metadata)) if whole else None
    return found
