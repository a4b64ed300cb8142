"""The reading half of the dump tool: the contents of a log's files.

Owns: files -> values, damaged files included.  Must not know how values are shown; changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from sparklog.errors import DecodeError
from sparklog.executors.log.checkpoint import EpochEntry, decode_epochs
from sparklog.executors.log.cleaned_segments import CLEANED_SUFFIX
from sparklog.executors.log.names import (
    DELETED_SUFFIX,
    EPOCH_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    STATS_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_file_name,
)
from sparklog.executors.log.offset_index import OffsetIndex, unpack_offset_index
from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.executors.log.producer_snapshot import ProducerSnapshotEntry, decode_snapshot
from sparklog.executors.log.scan import ScanWindow
from sparklog.executors.log.time_index import TimeIndex, unpack_time_index
from sparklog.executors.log.txn_index import AbortedTxn, unpack_txn_index
from sparklog.segment_files.index_entries import OffsetPosition, TimestampOffset
from sparklog.segment_files.stats_file import TimestampRange, decode_stats
from sparklog.storage_backends.base import FileHandle
from sparklog.types import NO_TIMESTAMP, Compression, TimestampType
from sparklog.wire.records.batch import check_batch, read_header
from sparklog.wire.records.builder import Record, iter_records
from sparklog.wire.records.control import marker_of
from sparklog.wire.records.stored_batches import header_damage

__all__ = [
    "AbortedTxn",
    "BatchDump",
    "Damage",
    "EpochEntry",
    "FileKind",
    "OffsetPosition",
    "ProducerSnapshotEntry",
    "TimestampOffset",
    "decode_epochs",
    "decode_partition_metadata",
    "decode_snapshot",
    "dump_offset_index",
    "dump_records",
    "dump_segment",
    "dump_stats",
    "dump_time_index",
    "dump_txn_index",
    "identify",
    "marker_of",
]


class FileKind(Enum):
    """The kind of a file in a partition directory, by its name."""

    SEGMENT = LOG_SUFFIX
    OFFSET_INDEX = INDEX_SUFFIX
    TIME_INDEX = TIME_INDEX_SUFFIX
    TXN_INDEX = TXN_INDEX_SUFFIX
    SNAPSHOT = SNAPSHOT_SUFFIX
    STATS = STATS_SUFFIX
    EPOCHS = EPOCH_CHECKPOINT
    METADATA = PARTITION_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDump:
    """One batch of a segment; ``size`` and ``position`` in bytes, ``timestamp`` is the largest.

    ``delete_horizon`` is the time in milliseconds from which on the cleaner may remove the
    batch's tombstones, or its marker (KIP-534); None for a batch without this time.
    """

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    position: int
    timestamp: int
    timestamp_type: TimestampType
    size: int
    magic: int
    codec: Compression
    crc: int
    crc_valid: bool
    delete_horizon: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Where the readable part of a segment ends, and why; ``bytes_left`` bytes follow."""

    position: int
    reason: str
    bytes_left: int


def identify(name: str) -> tuple[FileKind, int] | None:
    """Kind and base offset (0 where there is none) of a file name without directories.

    Returns None for a name of another kind.  A file that waits for deletion keeps its kind, and a
    cleaned file has the kind that it will have after the swap.
    """
    if name in (EPOCH_CHECKPOINT, PARTITION_METADATA):
        return FileKind(name), 0
    for suffix in (CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(suffix)
    parsed = parse_file_name(name)
    if parsed is None:
        return None
    base_offset, suffix = parsed
    known = {kind.value for kind in FileKind}
    return (FileKind(suffix), base_offset) if suffix in known else None


def dump_segment(handle: FileHandle) -> Iterator[BatchDump | Damage]:
    """Every batch in the order of the file.

    A batch with a wrong CRC says so.  Where no batch can be recognised, a Damage is the last value.
    """
    window = ScanWindow(handle)
    position = 0
    while position < window.size:
        left = window.size - position
        header = window.header(position)
        reason = "a batch header is cut off" if header is None else header_damage(header, left)
        if header is None or reason is not None:
            yield Damage(position=position, reason=reason or "", bytes_left=left)
            return
        yield BatchDump(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            count=header.record_count,
            base_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            partition_leader_epoch=header.partition_leader_epoch,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            position=position,
            timestamp=header.max_timestamp,
            timestamp_type=header.timestamp_type,
            size=header.size,
            magic=header.magic,
            codec=header.compression,
            crc=header.crc,
            crc_valid=window.checksum_damage(header, position) is None,
            delete_horizon=header.base_timestamp if header.has_delete_horizon else None,
        )
        position += header.size


def dump_records(handle: FileHandle, batch: BatchDump) -> Iterator[Record]:
    """The records of one batch, control records included, decoded one by one.

    Raises KafkaError, and DecodeError, also after some records.
    """
    data = handle.read(batch.position, batch.size)
    header = read_header(data)
    check_batch(data, 0, header)
    return iter_records(data, 0, header)


def dump_stats(data: bytes, base_offset: int) -> list[TimestampRange]:
    """The timestamps of a segment by intervals of offsets; none if they were not measured.

    Raises DecodeError.
    """
    return list(decode_stats(data, base_offset).ranges or ())


def dump_offset_index(data: bytes, base_offset: int) -> list[OffsetPosition]:
    """Entries of an ``.index``, without the empty slots of a preallocated one.

    Raises DecodeError naming the entry that cannot be true.
    """
    entries = unpack_offset_index(data, base_offset)
    _check_rest(data, OffsetIndex.ENTRY.size)
    offset, position = base_offset - 1, -1
    for number, entry in enumerate(entries):
        if entry.offset <= offset or entry.position <= position:
            raise DecodeError(f"offset index entry {number} is not above the one before it")
        offset, position = entry.offset, entry.position
    return entries


def dump_time_index(data: bytes, base_offset: int) -> list[TimestampOffset]:
    """Entries of a ``.timeindex``, without the empty slots of a preallocated one.

    Raises DecodeError naming the entry that cannot be true.
    """
    entries = unpack_time_index(data, base_offset)
    _check_rest(data, TimeIndex.ENTRY.size)
    timestamp, offset = NO_TIMESTAMP - 1, base_offset
    for number, entry in enumerate(entries):
        if entry.timestamp <= timestamp or entry.offset < offset:
            raise DecodeError(f"time index entry {number} is not above the one before it")
        timestamp, offset = entry.timestamp, entry.offset
    return entries


def _check_rest(data: bytes, entry_size: int) -> None:
    """An index ends with an entry, or with zeros that were preallocated."""
    rest = len(data) % entry_size
    if rest and any(data[-rest:]):
        raise DecodeError(f"the last {rest} bytes are no entry, which has {entry_size}")


def dump_txn_index(data: bytes, base_offset: int) -> list[AbortedTxn]:
    """Entries of a ``.txnindex``.  Raises DecodeError naming the byte."""
    return unpack_txn_index(data, base_offset)
