"""What happens in the bucket, written down as it happens: commits of manifests, and deletions.

Owns: reading objects without any operation, and no draw from a seed.  Must not know what they ought
to hold.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

from sparklog.commit_log.documents import decode_document
from sparklog.errors import DecodeError
from sparklog.executors.partition import Partition, TieredStart
from sparklog.executors.tiering.copy_plan import leader_log_of
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import decode_aborted
from sparklog.remote_log.leader_epochs import decode_epochs
from sparklog.remote_log.manifest_log import ManifestHeader
from sparklog.remote_log.manifest_records import (
    LogStartMoved,
    ManifestRecord,
    SegmentAdded,
    SegmentShortened,
    SegmentsRemoved,
    TruncatedAfter,
    record_from_json,
)
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.remote_log.takeover import LeaderLog
from sparklog.types import NO_OFFSET
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.control import ControlType, read_marker
from tests.simulation.actors import current_node
from tests.simulation.events import LogId
from tests.simulation.fibers import FIBER
from tests.simulation.final_state import ProducerSeen, TieredReplica
from tests.simulation.tier_events import TierBatch, TierCommitted, TierObjectDeleted, TierSegment
from tests.simulation.workloads import observe, platter
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

_COMMIT = re.compile(r"([0-9a-f-]{36})/(\d+)/manifest/(\d{20})\.json", re.ASCII)
_OBJECT = re.compile(r"([0-9a-f-]{36})/(\d+)/segments/([^./]+)\.(?:log|indexes)", re.ASCII)


def watch(scene: Scene) -> None:
    """Write down what happens from now on."""
    bucket = scene.world.bucket
    assert bucket is not None

    def happened(operation: str, path: str) -> None:
        commit, part = _COMMIT.fullmatch(path), _OBJECT.fullmatch(path)
        if operation == "put_if_absent" and commit:
            log = _log_of(scene, commit[1], commit[2])
            if log is not None:
                _committed(scene, log, int(commit[3]), path)
        elif operation == "delete" and part:
            log = _log_of(scene, part[1], part[2])
            if log is not None:
                scene.count("tier_objects_deleted")
                scene.history.record(TierObjectDeleted(log=log, segment_id=part[3]))

    bucket.watch = happened


@contextmanager
def starts(scene: Scene) -> Iterator[None]:
    """Meanwhile it is counted how often a follower starts at the end of the bucket, and a leader of
    a log that all replicas have lost."""
    real, real_recovery = Partition.begin_start_in_tier, Partition.begin_recovery

    def begin(self: Partition, start: TieredStart, *, leader_epoch: int) -> bool:
        begins = real(self, start, leader_epoch=leader_epoch)
        scene.count("tier_starts", begins)
        return begins

    def begin_recovery(self: Partition, start: TieredStart) -> bool:
        begins = real_recovery(self, start)
        scene.count("bucket_recoveries", begins and bool(start.leader_epochs))
        return begins

    with (
        patch.object(Partition, "begin_start_in_tier", begin),
        patch.object(Partition, "begin_recovery", begin_recovery),
    ):
        yield


def replicas(scene: Scene) -> Iterator[TieredReplica]:
    """Every replica of a tiered log that works."""
    for broker_id, host in scene.world.brokers.items():
        for partition in host.broker.replica_manager if host.broker is not None else ():
            log_id, log = observe.log_of(partition), partition.log
            if not scene.is_tiered(log_id) or log.offline is not None or log.truncating:
                continue
            disk, tp = host.disk.backend.disk, partition.topic_partition
            found = platter.whole_batches(disk, broker_id, tp, log.local_log_start_offset)
            yield TieredReplica(
                broker=broker_id,
                log=log_id,
                leads=partition.is_leader,
                log_start=log.log_start_offset,
                local_start=log.local_log_start_offset,
                high_watermark=partition.high_watermark,
                epochs=tuple((e.epoch, e.start_offset) for e in log.leader_epochs.entries),
                producers=tuple(_producers(partition)),
                batches=tuple(batch for data, _ in found for batch in read_batches(data)),
            )


def _producers(partition: Partition) -> Iterator[ProducerSeen]:
    for producer_id, entry in sorted(partition.producers.entries.items()):
        yield ProducerSeen(
            producer_id=producer_id,
            epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_offset=entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
            open_from=entry.current_txn_first_offset,
        )


def _log_of(scene: Scene, topic_id: str, partition: str) -> LogId | None:
    known = [*scene.topics, *scene.transactional, *scene.passing.values()]
    for topic in known:
        if topic.topic_id == UUID(topic_id):
            return LogId(topic.name, topic.topic_id, int(partition))
    return None


def _committed(scene: Scene, log: LogId, number: int, path: str) -> None:
    assert scene.world.bucket is not None
    data = scene.world.bucket.content(path)
    assert data is not None
    header, records = decode_document(data, ManifestHeader, record_from_json)
    node, fiber = current_node(), FIBER.get()
    assert node is not None
    assert fiber is not None
    broker_id = int(node.host.removeprefix("broker-"))
    added = tuple(
        _read_segment(scene, log, record.segment)
        for record in records
        if isinstance(record, SegmentAdded)
    )
    partition = _partition(scene, log, broker_id)
    kinds = ", ".join(type(record).__name__ for record in records)
    scene.world.note(f"{log}: commit {number} of epoch {header.leader_epoch}: {kinds}")
    scene.count("tier_commits")
    scene.count("tier_segments", len(added))
    scene.count("tier_leavings", _empties(records))
    scene.count("tier_truncations", any(isinstance(each, TruncatedAfter) for each in records))
    scene.count("tier_shortenings", any(isinstance(each, SegmentShortened) for each in records))
    scene.history.record(
        TierCommitted(
            log=log,
            number=number,
            leader_epoch=header.leader_epoch,
            broker=broker_id,
            records=records,
            added=added,
            log_start=-1 if partition is None else partition.log.log_start_offset,
            leader_log=_leader_log(partition, header.leader_epoch),
            locked_ms=int(fiber.locked_s[0] * 1000),
        )
    )


def _empties(records: Sequence[ManifestRecord]) -> bool:
    """Whether a topic has left: several segments are removed, and the log starts below the last."""
    match records:
        case (SegmentsRemoved(segment_ids=ids), LogStartMoved(log_start_offset=start)):
            return (names.base_offset(ids[-1]) or 0) > start
    return False


def _partition(scene: Scene, log: LogId, broker_id: int) -> Partition | None:
    """A replica of a broker that serves."""
    broker = scene.world.brokers[broker_id].broker
    partition = broker.replica_manager.get(tp_of(log)) if broker is not None else None
    return partition if partition is not None and partition.topic_id == log.topic_id else None


def _leader_log(partition: Partition | None, leader_epoch: int) -> LeaderLog | None:
    """None of a replica that does not lead in this epoch (any more), or has no log that works."""
    if partition is None or not partition.is_leader or partition.leader_epoch != leader_epoch:
        return None
    log = partition.log
    if log.offline is not None or log.truncating:
        return None
    return leader_log_of(log)


def _read_segment(scene: Scene, log: LogId, segment: RemoteSegment) -> TierSegment:
    assert scene.world.bucket is not None
    folder = names.segments_folder(log.topic_id, log.partition)
    data = scene.world.bucket.content(names.log_object(folder, segment.segment_id))
    indexes = scene.world.bucket.content(names.indexes_object(folder, segment.segment_id))
    if data is None or indexes is None or len(data) != segment.log_size:
        return TierSegment(segment=segment, damage="its objects are not there, or not whole")

    def part(name: PartName) -> bytes:
        found = segment.parts.get(name)
        return b"" if found is None else indexes[found.offset : found.offset + found.size]

    try:
        return TierSegment(
            segment=segment,
            batches=tuple(read_batches(data)),
            epochs=decode_epochs(part(PartName.LEADER_EPOCHS)),
            aborted=decode_aborted(part(PartName.ABORTED_TXNS)),
        )
    except DecodeError as error:
        return TierSegment(segment=segment, damage=str(error))


def read_batches(data: bytes) -> Iterator[TierBatch]:
    """The batches of a log object.  Raises DecodeError."""
    for header, at in iter_batches(data):
        marker = read_marker(data, at, header) if header.is_control else None
        yield TierBatch(
            header.base_offset,
            header.next_offset,
            zlib.crc32(data[at : at + header.size]),
            header.partition_leader_epoch,
            header.producer_id,
            header.is_transactional,
            marker is not None,
            marker is not None and marker.control_type is ControlType.COMMIT,
            header.max_timestamp,
        )
