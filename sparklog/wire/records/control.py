"""Control batches: the markers that end a transaction in a partition.

Owns: the batch with one record whose key is version i16 and type i16 and whose value is version
i16 and coordinator epoch i32 (``ControlRecordType``, ``EndTransactionMarker``, KIP-98).  Must not
know transactions, logs or the writer of a marker.

As in Kafka, a key or value of a later version is read as version 0, which later versions extend.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sparklog.errors import DecodeError
from sparklog.types import NO_LEADER_EPOCH, TimestampType
from sparklog.wire.records.batch import BatchHeader, Buffer
from sparklog.wire.records.builder import Record, encode_batch, iter_records

_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
#: A control batch holds one small record; a larger batch is not read into memory.
CONTROL_BYTES_MAX: Final = 1 << 20


class ControlType(IntEnum):
    """The end of a transaction.  Other control records (of Raft logs) are ignored."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnMarker:
    """The fields of a marker; producer id and epoch are in the batch header."""

    control_type: ControlType
    coordinator_epoch: int


def encode_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch with this marker; ``timestamp`` in milliseconds."""
    record = Record(
        key=_KEY.pack(_VERSION, marker.control_type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
        timestamp=timestamp,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        timestamp_type=timestamp_type,
    )


def read_marker(buf: Buffer, start: int, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in the control batch at ``start``.

    None for a control batch of another kind, or emptied by compaction.  Raises DecodeError.  The
    CRC is not checked.
    """
    assert header.is_control, header
    record = next(iter_records(buf, start, header, limit_bytes=CONTROL_BYTES_MAX), None)
    return None if record is None else marker_of(record)


def marker_of(record: Record) -> EndTxnMarker | None:
    """The marker in a record of a control batch; None for a control record of another kind."""
    kind = _number(_KEY, record.key, "key of a control record")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    coordinator_epoch = _number(_VALUE, record.value, "value of a transaction marker")
    return EndTxnMarker(control_type=ControlType(kind), coordinator_epoch=coordinator_epoch)


def _number(layout: struct.Struct, data: bytes | None, what: str) -> int:
    """The number behind the version."""
    if data is None or len(data) < layout.size:
        size = 0 if data is None else len(data)
        raise DecodeError(f"the {what} has {size} bytes, it needs {layout.size}")
    version, number = layout.unpack_from(data)
    if version < _VERSION:
        raise DecodeError(f"the {what} has the impossible version {version}")
    return int(number)
