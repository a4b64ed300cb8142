"""Targets: the files of a log directory, and of the journal."""

import struct
from collections.abc import Iterator
from functools import cache
from uuid import UUID

from crc32c import crc32c

from sparklog.driver.control_plane.journal import CommitHeader, Journal, JournalError, commit_name
from sparklog.executors.log import checkpoint
from sparklog.executors.log.offset_index import unpack_offset_index
from sparklog.executors.log.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)
from sparklog.executors.log.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.executors.log.time_index import unpack_time_index
from sparklog.executors.log.txn_index import unpack_txn_index
from sparklog.executors.log_dirs.broker_dir import MetaProperties
from sparklog.executors.log_dirs.checkpoint_reserve import decode_slot, encode_slot
from sparklog.metadata import (
    BrokerIdAssigned,
    ClusterCreated,
    ConfigChanged,
    ControllerChanged,
    decode_records,
    encode_records,
)
from sparklog.segment_files.index_entries import Checksum, TimestampOffset
from sparklog.segment_files.stats_file import (
    STATS_HEADER_BYTES,
    SegmentStats,
    TimestampRange,
    decode_stats,
    encode_stats,
)
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from tests.fuzz.target import Target

BASE_OFFSET = 1000

# -- indexes: any bytes are entries; what they say is checked against the log


def _offset_index(data: bytes) -> None:
    entries = unpack_offset_index(data, BASE_OFFSET)
    packed = b"".join(struct.pack(">ii", e.offset - BASE_OFFSET, e.position) for e in entries)
    assert data.startswith(packed)


def _time_index(data: bytes) -> None:
    entries = unpack_time_index(data, BASE_OFFSET)
    packed = b"".join(struct.pack(">qi", e.timestamp, e.offset - BASE_OFFSET) for e in entries)
    assert data.startswith(packed)


def _index_seeds() -> Iterator[bytes]:
    yield struct.pack(">iiiiii", 5, 100, 9, 200, 0, 0)
    yield struct.pack(">qiqiqi", 1000, 5, 1010, 9, 0, 0)


def _txn_index(data: bytes) -> None:
    entries = unpack_txn_index(data, BASE_OFFSET, BASE_OFFSET + 1000)
    assert b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries) == data


def _txn_indexes() -> Iterator[bytes]:
    first = struct.pack(">hqqqq", 0, 7, BASE_OFFSET + 1, BASE_OFFSET + 5, BASE_OFFSET + 6)
    yield first
    yield first + struct.pack(">hqqqq", 0, 8, BASE_OFFSET, BASE_OFFSET + 9, BASE_OFFSET + 8)


# -- statistics: as they are, and with the CRCs made right


def _stats(data: bytes) -> None:
    assert encode_stats(decode_stats(data, BASE_OFFSET), BASE_OFFSET) == data


def _stats_with_crcs(data: bytes) -> None:
    header, body = data.ljust(_STATS_FIELDS)[:_STATS_FIELDS], data[_STATS_FIELDS:]
    fields = header[:-4] + struct.pack(">I", crc32c(body))
    _stats(struct.pack(">4shI", b"SLST", 1, crc32c(fields)) + fields + body)


_STATS_FIELDS = STATS_HEADER_BYTES - 10


def _statistics() -> Iterator[bytes]:
    ranges = (
        TimestampRange(BASE_OFFSET, BASE_OFFSET + 5, 10, 20),
        TimestampRange(BASE_OFFSET + 5, BASE_OFFSET + 9, -1, 30),
    )
    for measured in (None, (), ranges):
        stats = SegmentStats(
            log_size=500,
            next_offset=BASE_OFFSET + 9,
            last_position=400,
            last_crc=77,
            largest=TimestampOffset(30, BASE_OFFSET + 8),
            offset_index=Checksum(1, 5),
            time_index=Checksum(2, 6),
            ranges=measured,
        )
        yield encode_stats(stats, BASE_OFFSET)


def _statistics_bodies() -> Iterator[bytes]:
    for stats in _statistics():
        yield stats[10:]


# -- snapshots: as they are, and with the CRC made right


def _snapshot(data: bytes) -> None:
    assert encode_snapshot(decode_snapshot(data)) == data


def _snapshot_with_crc(data: bytes) -> None:
    _snapshot(struct.pack(">hI", 1, crc32c(data)) + data)


ENTRY = ProducerSnapshotEntry(
    producer_id=7, producer_epoch=1, last_sequence=5, last_offset=99, offset_delta=2, timestamp=3
)


def _snapshots() -> Iterator[bytes]:
    for entries in ((), (ENTRY,), (ENTRY, ENTRY)):
        yield encode_snapshot(entries)


def _snapshot_bodies() -> Iterator[bytes]:
    for snapshot in _snapshots():
        yield snapshot[6:]


# -- text


def _epochs(data: bytes) -> None:
    entries = checkpoint.decode_epochs(data)
    assert checkpoint.decode_epochs(checkpoint.encode_epochs(entries)) == entries


def _offsets(data: bytes) -> None:
    offsets = checkpoint.decode_offsets(data)
    assert checkpoint.decode_offsets(checkpoint.encode_offsets(offsets)) == offsets


def _checkpoints() -> Iterator[bytes]:
    yield checkpoint.encode_epochs(())
    yield checkpoint.encode_epochs([checkpoint.EpochEntry(0, 0), checkpoint.EpochEntry(3, 17)])
    yield checkpoint.encode_offsets({})
    yield checkpoint.encode_offsets({TopicPartition("a.b-c", 0): 5, TopicPartition("d", 3): 2**62})


def _reserve_slot(data: bytes) -> None:
    sequence, checkpoints = decode_slot(data)
    assert decode_slot(encode_slot(sequence, checkpoints)) == (sequence, checkpoints)


def _reserve_slot_with_crc(data: bytes) -> None:
    """With the sizes and the CRC made right."""
    body = struct.pack(">QI", 5, len(data)) + data
    _reserve_slot(struct.pack(">I", crc32c(body)) + body)


def _reserve_slots() -> Iterator[bytes]:
    checkpoints = list(_checkpoints())
    yield encode_slot(1, {})
    yield encode_slot(2, {"log-start": checkpoints[2], "recovery-point": checkpoints[3]})


def _reserve_slot_bodies() -> Iterator[bytes]:
    for slot in _reserve_slots():
        yield slot[16:]


def _meta_properties(data: bytes) -> None:
    meta = MetaProperties.decode(data)
    assert MetaProperties.decode(meta.encode()) == meta


def _metas() -> Iterator[bytes]:
    meta = MetaProperties(cluster_id="cluster", node_id=3, directory_id=UUID(int=5))
    yield meta.encode()
    yield b"#comment\n" + meta.encode()


def _partition_metadata(data: bytes) -> None:
    topic_id = decode_partition_metadata(data)
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


def _partition_metadatas() -> Iterator[bytes]:
    yield encode_partition_metadata(UUID(int=2**127 + 9))


# -- the journal

FIRST = (ClusterCreated(cluster_id="c", created_ms=1),)
LATER = (
    ControllerChanged(controller_epoch=1, host="h", port=9092),
    BrokerIdAssigned(broker_id=1),
    ConfigChanged(resource_type=2, resource_name="t", name="retention.ms", value="1"),
)


@cache
def _begun_journal() -> tuple[MemoryBackend, Journal]:
    backend = MemoryBackend()
    journal = Journal(backend)
    journal.commit(_header(1), encode_records(FIRST))
    return backend, journal


def _journal(data: bytes) -> None:
    """The second commit of a journal; it is loaded whole or not at all."""
    backend, journal = _begun_journal()
    backend.put(commit_name(2), data)
    image = journal.load()
    assert (image.version, image.cluster_id) == (2, "c")


def _commits() -> Iterator[bytes]:
    for records in ((), *((record,) for record in LATER), LATER):
        backend = MemoryBackend()
        Journal(backend).commit(_header(2), encode_records(records))
        yield backend.read(commit_name(2))


def _header(version: int) -> CommitHeader:
    return CommitHeader(version=version, controller_epoch=1, nonce="n", time_ms=0)


def _records(data: bytes) -> None:
    records = decode_records(data)
    assert decode_records(encode_records(records)) == records


def _record_lists() -> Iterator[bytes]:
    for record in (*FIRST, *LATER):
        yield encode_records([record])


TARGETS = [
    Target(name="offset-index", decode=_offset_index, seeds=_index_seeds),
    Target(name="time-index", decode=_time_index, seeds=_index_seeds),
    Target(name="txn-index", decode=_txn_index, seeds=_txn_indexes),
    Target(name="stats", decode=_stats, seeds=_statistics),
    Target(name="stats-values", decode=_stats_with_crcs, seeds=_statistics_bodies),
    Target(name="snapshot", decode=_snapshot, seeds=_snapshots),
    Target(name="snapshot-entries", decode=_snapshot_with_crc, seeds=_snapshot_bodies),
    Target(name="epoch-checkpoint", decode=_epochs, seeds=_checkpoints),
    Target(name="offset-checkpoint", decode=_offsets, seeds=_checkpoints),
    Target(name="checkpoint-reserve", decode=_reserve_slot, seeds=_reserve_slots),
    Target(
        name="checkpoint-reserve-values",
        decode=_reserve_slot_with_crc,
        seeds=_reserve_slot_bodies,
    ),
    Target(name="meta-properties", decode=_meta_properties, seeds=_metas),
    Target(name="partition-metadata", decode=_partition_metadata, seeds=_partition_metadatas),
    Target(name="journal", decode=_journal, seeds=_commits, errors=(JournalError,)),
    Target(name="journal-records", decode=_records, seeds=_record_lists),
]
