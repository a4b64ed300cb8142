"""Single records <-> record batch v2, one record at a time.

Owns: the record format (``org.apache.kafka.common.record.DefaultRecord``) in plain Python, for
tools, tests and the clients of single records.  Must not know Arrow; ``columns`` is for bulk work.

A record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key and value
as (varint length or -1, bytes), headers as (varint count, then key and value each).  Varints are
zigzag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparklog.errors import DecodeError
from sparklog.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
    TimestampType,
)
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    Buffer,
    check_batch,
    iter_batches,
    pack_attributes,
    pack_batch,
)
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES, compress
from sparklog.wire.records.record_slices import RecordSlice, record_slices
from sparklog.wire.records.zigzag import MAX_VARLONG_BYTES, decode_varint, encode_varint


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; timestamp in milliseconds.  ``encode_batch`` assigns the offset for -1."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    leader_epoch: int = NO_LEADER_EPOCH,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch with all the records.

    A record without an offset gets the offset after its predecessor.  An empty batch, as left by
    compaction, needs ``last_offset_delta``.
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    section = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset == NO_OFFSET else record.offset - base_offset
        body = _encode_record(record, record.timestamp - base_timestamp, delta)
        section += encode_varint(len(body))
        section += body
    return pack_batch(
        compress(compression, section, compression_level),
        attributes=pack_attributes(
            compression,
            timestamp_type=timestamp_type,
            transactional=transactional,
            control=control,
        ),
        record_count=len(records),
        last_offset_delta=delta if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((r.timestamp for r in records), default=NO_TIMESTAMP),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def decode_records(
    buf: Buffer,
    *,
    skip_control: bool = True,
    partial_tail: bool = False,
    check_crc: bool = True,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> list[Record]:
    """All records of the batches in ``buf``, with absolute offsets and their final timestamps.

    Raises DecodeError for malformed batches, KafkaError for a wrong magic or CRC; ``partial_tail``
    skips a partial last batch.
    """
    found: list[Record] = []
    for header, start in iter_batches(buf, partial_tail=partial_tail):
        if check_crc:
            check_batch(buf, start, header)
        if not (skip_control and header.is_control):
            found += decode_batch(buf, start, header, limit_bytes=limit_bytes)
    return found


def decode_batch(
    buf: Buffer, start: int, header: BatchHeader, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> list[Record]:
    """The records of the one batch at ``start``.  Raises DecodeError."""
    return list(iter_records(buf, start, header, limit_bytes=limit_bytes))


def iter_records(
    buf: Buffer,
    start: int,
    header: BatchHeader,
    *,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
    from_offset: int | None = None,
) -> Iterator[Record]:
    """The records of one batch, one by one, decompressed on demand.

    Records below ``from_offset`` may be skipped.  Raises DecodeError, maybe after some records.
    """
    if header.record_count == 0 and header.size == BATCH_OVERHEAD:
        return  # emptied by compaction; there is nothing to decompress
    packed = memoryview(buf)[start + BATCH_OVERHEAD : start + header.size]
    # Without gaps the index of a record gives its offset.
    gapless = header.record_count == header.last_offset_delta + 1
    skip_below = from_offset if gapless else None
    behind = header.base_offset
    for part in record_slices(
        header.compression, packed, header.record_count, limit_bytes=limit_bytes
    ):
        behind += part.count
        if skip_below is None or behind > skip_below:
            yield from iter_slice(part, header)


def iter_slice(part: RecordSlice, header: BatchHeader) -> Iterator[Record]:
    """The records of a slice of a batch.  Raises DecodeError, maybe after some records."""
    section = memoryview(part.data)
    position = 0
    for _ in range(part.count):
        length, position = decode_varint(section, position)
        if not 0 <= length <= len(section) - position:
            raise DecodeError(f"record of {length} bytes where {len(section) - position} remain")
        yield _decode_record(section[position : position + length], header)
        position += length
    if position != len(section):
        raise DecodeError(f"{len(section) - position} bytes after the last record of a batch")


def check_record(body: memoryview) -> None:
    """Raises DecodeError for a record (without its length) that ``iter_records`` refuses."""
    _decode_fields(body)


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [
        b"\x00",
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        _encode_bytes(record.key),
        _encode_bytes(record.value),
        encode_varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += (_encode_bytes(key.encode()), _encode_bytes(value))
    return b"".join(parts)


def _encode_bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def _decode_record(body: memoryview, header: BatchHeader) -> Record:
    timestamp_delta, offset_delta, key, value, headers = _decode_fields(body)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return Record(
        value=value,
        key=key,
        timestamp=timestamp,
        offset=header.base_offset + offset_delta,
        headers=headers,
    )


def _decode_fields(
    body: memoryview,
) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    """Timestamp delta, offset delta, key, value and headers."""
    timestamp_delta, position = decode_varint(body, 1, MAX_VARLONG_BYTES)
    offset_delta, position = decode_varint(body, position)
    key, position = _decode_bytes(body, position)
    value, position = _decode_bytes(body, position)
    headers, position = _decode_headers(body, position)
    if position != len(body):
        raise DecodeError(f"{len(body) - position} bytes left over in a record")
    return timestamp_delta, offset_delta, key, value, headers


def _decode_bytes(body: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(body, position)
    if length == -1:
        return None, position
    if not 0 <= length <= len(body) - position:
        raise DecodeError(f"field of {length} bytes where {len(body) - position} remain")
    return bytes(body[position : position + length]), position + length


def _decode_headers(
    body: memoryview, position: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(body, position)
    if not 0 <= count <= len(body) - position:
        raise DecodeError(f"{count} headers where {len(body) - position} bytes remain")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _decode_bytes(body, position)
        value, position = _decode_bytes(body, position)
        if key is None:
            raise DecodeError("a header key is null")
        try:
            found.append((key.decode(), value))
        except UnicodeDecodeError as error:
            raise DecodeError(f"a header key is not UTF-8: {error}") from error
    return tuple(found), position
