"""Record batch v2 as a view over bytes: header, CRC-32C check, stamping.

Owns: the 61 bytes before the records (``org.apache.kafka.common.record.DefaultRecordBatch``) and
every rule about them.  Must not know single records, compression or callers.

Layout, big endian: base offset i64, batch length i32 (bytes after it), partition leader epoch i32,
magic i8, CRC u32 (of everything after it), attributes i16, last offset delta i32, base timestamp
i64, max timestamp i64, producer id i64, producer epoch i16, base sequence i32, record count i32.
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import MAX_INT32, NO_PRODUCER_ID, NO_SEQUENCE, Compression, TimestampType

Buffer = bytes | bytearray | memoryview

#: Bytes that the batch length does not count: base offset and the length itself.
LOG_OVERHEAD: Final = 12
#: Bytes of a batch before its records.
BATCH_OVERHEAD: Final = 61
MAGIC_V2: Final = 2

#: The CRC covers everything from here to the end of the batch.
CRC_START: Final = 21
HEADER: Final = struct.Struct(">qiibIhiqqqhii")

TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
COMPRESSION_MASK: Final = 0x07
_NOT_FROM_CLIENTS: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT | DELETE_HORIZON_BIT

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_EPOCH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_LEADER_EPOCH_AT: Final = 12
_MAX_TIMESTAMP_AT: Final = 35
_MAX_SEQUENCE: Final = MAX_INT32


class BatchHeader(NamedTuple):
    """The header as read from the bytes, without any check.

    A tuple, because two are made for every batch that a broker appends, and a frozen dataclass of
    so many fields takes ten times as long.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec.  Raises DecodeError for an unknown codec."""
        code = self.attributes & COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise DecodeError(f"batch at offset {self.base_offset} has unknown codec {code}")
        return Compression(code)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)


#: Fields -> header; ``BatchHeader._make`` takes twice as long, because it counts them.
make_header: Final = partial(tuple.__new__, BatchHeader)


def add_sequence(sequence: int, increment: int) -> int:
    """The sequence number ``increment`` later; sequence numbers have 31 bits and wrap to 0."""
    return (sequence + increment) & _MAX_SEQUENCE


def read_header(buf: Buffer, offset: int = 0) -> BatchHeader:
    """The header at ``offset``.  Raises DecodeError when fewer than 61 bytes are left."""
    if offset < 0 or len(buf) - offset < BATCH_OVERHEAD:
        raise DecodeError(f"a batch header needs {BATCH_OVERHEAD} bytes, {len(buf) - offset} left")
    return make_header(HEADER.unpack_from(buf, offset))


def iter_batches(buf: Buffer, *, partial_tail: bool = False) -> Iterator[tuple[BatchHeader, int]]:
    """Headers and start positions of consecutive batches in ``buf``.

    Raises KafkaError(INVALID_RECORD) at a message of format 0 or 1, KafkaError(CORRUPT_MESSAGE) at
    an unknown magic, DecodeError at an impossible length.  A partial batch at the end, as in fetch
    responses, is a DecodeError too unless ``partial_tail`` skips it.  Neither CRC nor records are
    checked.
    """
    position = 0
    end = len(buf)
    while position < end:
        size = batch_size(buf, position)
        if size is None or position + size > end:
            if partial_tail:
                return
            raise DecodeError(f"batch at byte {position} is cut off after {end - position} bytes")
        yield read_header(buf, position), position
        position += size


def batch_size(buf: Buffer, start: int) -> int | None:
    """Size of the batch at ``start`` according to its header; None if ``buf`` ends before that.

    Raises like ``iter_batches`` for an unknown magic or an impossible length.
    """
    if len(buf) - start <= _MAGIC_AT:
        return None
    _, length = _OFFSET_AND_LENGTH.unpack_from(buf, start)
    _check_magic(_signed_byte(buf[start + _MAGIC_AT]))
    if length < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise DecodeError(f"batch at byte {start} has the impossible length {length}")
    return int(length) + LOG_OVERHEAD


def check_batch(buf: Buffer, start: int, header: BatchHeader) -> None:
    """Check magic, length and CRC of one batch.  Raises KafkaError with Kafka's code."""
    if header.magic != MAGIC_V2:
        _check_magic(header.magic)
    size = header.size
    end = start + size
    if size < BATCH_OVERHEAD or end > len(buf):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset} has length {header.batch_length}, "
            f"{len(buf) - start} bytes are there",
        )
    computed = crc32c(memoryview(buf)[start + CRC_START : end])
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset} has CRC {header.crc:#010x}, "
            f"its bytes give {computed:#010x}",
        )
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the batch has an unknown compression codec")


def check_client_batch(header: BatchHeader) -> None:
    """Check the rules for batches from clients (``LogValidator.validateBatch``).

    Raises KafkaError.  Batches in a log may break these rules: compaction leaves gaps,
    coordinators write control batches.
    """
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch says {count} records and last offset delta {header.last_offset_delta}",
        )
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent the invalid sequence {header.base_sequence}",
        )
    if header.attributes & _NOT_FROM_CLIENTS:
        if header.is_control:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        if header.attributes & DELETE_HORIZON_BIT:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "producers may not set the timestamp type LogAppendTime"
        )


def stamp(
    batch: bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    append_time: int | None = None,
    *,
    records: Buffer | None = None,
) -> None:
    """Write the leader's fields (offset, leader epoch, append time) into a batch, in place.

    ``batch`` starts at a batch and is writable.  Offset and epoch are not covered by the CRC.  With
    ``append_time`` (milliseconds) the batch becomes LogAppendTime, and its CRC is computed again.
    In this case ``batch`` must end with the batch; or it is a copy of the first 61 bytes, and
    ``records`` are the bytes behind them.
    """
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)
    if append_time is None:
        return
    _, attributes = _CRC_AND_ATTRIBUTES.unpack_from(batch, _CRC_AT)
    attributes |= TIMESTAMP_TYPE_BIT
    _OFFSET.pack_into(batch, _MAX_TIMESTAMP_AT, append_time)
    _CRC_AND_ATTRIBUTES.pack_into(batch, _CRC_AT, 0, attributes)
    crc = crc32c(memoryview(batch)[CRC_START:])
    if records is not None:
        crc = crc32c(records, crc)
    _CRC_AND_ATTRIBUTES.pack_into(batch, _CRC_AT, crc, attributes)


def pack_batch(
    records: Buffer,
    *,
    attributes: int,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A whole batch around its (compressed) record section; computes length and CRC."""
    header = pack_header(
        records,
        attributes=attributes,
        record_count=record_count,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return b"".join((header, records))


def pack_header(
    records: Buffer,
    *,
    attributes: int,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """The part of a batch in front of its record section, which is read but not copied."""
    length = BATCH_OVERHEAD - LOG_OVERHEAD + len(records)
    header = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        header,
        0,
        base_offset,
        length,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32c(records, crc32c(memoryview(header)[CRC_START:]))
    _CRC_AND_ATTRIBUTES.pack_into(header, _CRC_AT, crc, attributes)
    return bytes(header)


def pack_attributes(
    compression: Compression,
    *,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
) -> int:
    return (
        int(compression)
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def _check_magic(magic: int) -> None:
    if magic == MAGIC_V2:
        return
    if magic in (0, 1):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"message format {magic} is not supported; send record batches (format 2)",
        )
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"invalid magic {magic} in a record batch")


def _signed_byte(value: int) -> int:
    return value - 256 if value > 127 else value
