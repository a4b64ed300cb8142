"""Pieces from the JVM's packer: the encoded records of one batch each.

Owns: the form of pieces in Python, the handover of pieces that the JVM sent itself, decoding both
from Arrow, and decoding pieces to rows.  Must not know Spark, or connections.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa

from sparklog.dataframe.jvm import BY_KEY
from sparklog.wire.records.batch import BATCH_OVERHEAD, Buffer
from sparklog.wire.records.columns import decode_columns, encode_section
from sparklog.wire.records.spans import binary_buffers

#: Columns (see ``java/PieceOutlet.java``) beside ``records``.
_NUMBERS: Final = (
    "record_count",
    "base_timestamp",
    "max_timestamp",
    "partition",
    "acknowledged",
)
#: Producer id and epoch, topic id, number of pieces left, and the time of the first send.
_PRODUCER: Final = struct.Struct(">qh16siq")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRecords:
    """The records of one batch, without its header; times in milliseconds."""

    records: Buffer
    record_count: int
    base_timestamp: int
    max_timestamp: int
    #: The partition; None for any partition, or with ``by_key`` for that of each record's key.
    partition: int | None = None
    by_key: bool = False

    @property
    def batch_bytes(self) -> int:
        """Size of the batch before compression."""
        return BATCH_OVERHEAD + len(self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The state of the JVM's idempotent producer, which Python continues."""

    producer_id: int
    producer_epoch: int
    topic_id: UUID
    #: The number of pieces that were sent but not acknowledged; they come first.
    pieces_left: int
    #: The time in milliseconds when the first of these pieces was sent, or now.
    since_ms: int
    #: By partition, the sequence number of the first unacknowledged or else the next piece.
    sequences: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """The content of one Arrow batch from the JVM (see ``java/PieceOutlet.java``)."""

    #: The number of records that the JVM sent and brokers acknowledged.
    acknowledged: int
    #: The producer state for these pieces and all later ones, or None.
    handover: Handover | None
    pieces: Sequence[PackedRecords]

    @property
    def records(self) -> int:
        """The number of records, acknowledged or in pieces."""
        return self.acknowledged + sum(piece.record_count for piece in self.pieces)


def packed_batch(batch: pa.RecordBatch) -> PackedBatch:
    """The packed batch in an Arrow batch; the pieces are views of its memory, in order."""
    acknowledged = 0
    handover = None
    pieces = []
    numbers = (batch.column(name).to_pylist() for name in _NUMBERS)
    for records, count, base, latest, partition, sent in zip(
        binary_buffers(batch.column("records")), *numbers, strict=True
    ):
        acknowledged += sent
        if count:
            piece = PackedRecords(
                records=records,
                record_count=count,
                base_timestamp=base,
                max_timestamp=latest,
                partition=None if partition < 0 else partition,
                by_key=partition == BY_KEY,
            )
            pieces.append(piece)
        elif len(records):
            handover = _handover(bytes(records))
    return PackedBatch(acknowledged=acknowledged, handover=handover, pieces=pieces)


def _handover(told: bytes) -> Handover:
    producer_id, producer_epoch, topic_id, left, since_ms = _PRODUCER.unpack_from(told)
    sequences = struct.iter_unpack(">i", told[_PRODUCER.size :])
    return Handover(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topic_id=UUID(bytes=topic_id),
        pieces_left=left,
        since_ms=since_ms,
        sequences=[sequence for (sequence,) in sequences],
    )


def rows_of(piece: PackedRecords) -> pa.Table:
    """The piece's records: ``key``, ``value`` and ``timestamp``.  Raises DecodeError."""
    batch = encode_section(
        piece.records,
        record_count=piece.record_count,
        base_timestamp=piece.base_timestamp,
        max_timestamp=piece.max_timestamp,
    )
    columns = frozenset({"key", "value", "timestamp"})
    decoded = decode_columns(b"".join(batch.parts), columns=columns, check_crc=False)
    return pa.Table.from_batches(list(decoded))
