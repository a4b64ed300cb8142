"""The ``.snapshot`` format: producer state of a partition as Kafka writes it.

Owns: bytes <-> entries.  Must not know what the entries mean or where the bytes are kept.

Layout, big endian (``ProducerStateManager.PRODUCER_SNAPSHOT_ENTRY_SCHEMA``): version i16 = 1,
CRC-32C u32 of everything after it, entry count i32, then per entry producer id i64, producer epoch
i16, last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32,
first offset of the current transaction i64.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.errors import DecodeError
from sparklog.types import NO_OFFSET

SNAPSHOT_VERSION: Final = 1

_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshotEntry:
    """One batch of a producer id, and where its open transaction began (-1: none open).

    A producer id may have several entries, of which the last has its newest batch.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int = -1
    current_txn_first_offset: int = NO_OFFSET


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """A whole snapshot file."""
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes | bytearray | memoryview) -> list[ProducerSnapshotEntry]:
    """The entries of a snapshot file.  Raises DecodeError for any damage."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise DecodeError(f"a producer snapshot of {len(data)} bytes is too short")
    version, crc = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise DecodeError(f"producer snapshot version {version} is not known")
    body = memoryview(data)[_HEADER.size :]
    computed = crc32c(body)
    if computed != crc:
        raise DecodeError(f"producer snapshot CRC is {crc:#010x}, its bytes give {computed:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or _COUNT.size + count * _ENTRY.size != len(body):
        raise DecodeError(f"producer snapshot says {count} entries in {len(body)} bytes")
    return [
        ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_sequence=last_sequence,
            last_offset=last_offset,
            offset_delta=offset_delta,
            timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=current_txn_first_offset,
        )
        for (
            producer_id,
            producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            current_txn_first_offset,
        ) in _ENTRY.iter_unpack(body[_COUNT.size :])
    ]
