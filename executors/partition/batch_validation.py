"""The validation of a client's batch, and its stamping for the log.

Owns: the checks of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator`` that need only the header, and the stamping.  Must not know partitions, files
or clocks.

Only the header is checked, because records are never decoded here: the timestamp bounds on its base
and largest timestamp, and the record count by the number of bytes.
"""

from crc32c import crc32c

from sparklog.config import TopicConfig
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import NO_PRODUCER_ID, NO_TIMESTAMP, Compression, TimestampType
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    check_client_batch,
    iter_batches,
    make_header,
    read_header,
    stamp,
)
from sparklog.wire.records.control import encode_marker
from sparklog.wire.records.record_slices import MIN_RECORD_BYTES, check_plausible_count


def read_client_batch(records: Buffer | None, config: TopicConfig) -> BatchHeader:
    """Check the single batch of a produce request for a partition, and return its header.

    Raises KafkaError with the code that Kafka answers: INVALID_RECORD, CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request needs one batch, found none")
    size = len(records)
    header = read_header(records) if size >= BATCH_OVERHEAD else None
    if header is None or header.magic != MAGIC_V2 or header.batch_length != size - LOG_OVERHEAD:
        raise _not_one_batch(records)
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise _too_large(size, config)
    if not _is_ordinary(header) or crc32c(memoryview(records)[CRC_START:]) != header.crc:
        check_batch(records, 0, header)
        check_client_batch(header)
        _check_client_rules(header)
    if header.record_count * MIN_RECORD_BYTES > size - BATCH_OVERHEAD:
        _check_count(header)
    return header


def read_coordinator_batch(records: Buffer, config: TopicConfig) -> BatchHeader:
    """The header of a batch that a coordinator of this broker has written itself.

    Raises MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE.
    """
    size = len(records)
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise _too_large(size, config)
    return read_header(records)


def check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Check CreateTime against the broker's clock.  Raises INVALID_TIMESTAMP."""
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is outside [{earliest}, {latest}]; see the topic settings "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
            )


def stamp_batch(
    records: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int, append_time: int
) -> tuple[list[Buffer], BatchHeader]:
    """The stamped batch for the log, and its stamped header.

    ``append_time`` is NO_TIMESTAMP for CreateTime.  Writable bytes are stamped in place; read-only
    bytes get a stamped copy of their header in front.
    """
    when = None if append_time == NO_TIMESTAMP else append_time
    view = memoryview(records)
    buffers: list[Buffer]
    if view.readonly:
        head, rest = bytearray(view[:BATCH_OVERHEAD]), view[BATCH_OVERHEAD:]
        stamp(head, base_offset, leader_epoch, when, records=rest)
        buffers = [head, rest]
    else:
        stamp(view, base_offset, leader_epoch, when)
        buffers = [view]
    return buffers, _stamped(header, base_offset, leader_epoch, when)


def make_marker(
    end: TransactionEnd, config: TopicConfig, base_offset: int, leader_epoch: int, now_ms: int
) -> tuple[bytes, BatchHeader]:
    """The control batch that ends a transaction, and its header."""
    data = encode_marker(
        end.marker,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        timestamp=now_ms,
        timestamp_type=config.timestamp_type,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return data, read_header(data)


def _stamped(
    header: BatchHeader, base_offset: int, leader_epoch: int, when: int | None
) -> BatchHeader:
    """The header after stamping, except for its CRC."""
    if when is None:
        # Like _replace, in half the time.
        return make_header((base_offset, header[1], leader_epoch, *header[3:]))
    return header._replace(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=header.attributes | TIMESTAMP_TYPE_BIT,
        max_timestamp=when,
    )


def _not_one_batch(records: Buffer) -> KafkaError:
    """The error for records that are not exactly one batch.  Raises KafkaError too.

    A truncated batch does not count.  Deviation: bytes behind the batch are refused; Kafka drops
    them.
    """
    try:
        headers = [header for header, _ in iter_batches(records, partial_tail=True)]
        if len(headers) == 1:
            headers = [header for header, _ in iter_batches(records)]
    except DecodeError as error:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"a produce request carries exactly one batch per partition, found {len(headers)}",
    )


def _is_ordinary(header: BatchHeader) -> bool:
    """Whether the batch keeps all rules for clients, as nearly all batches do."""
    return (
        header.base_offset == 0
        and 0 <= (header.attributes & ~TRANSACTIONAL_BIT) <= Compression.ZSTD
        and 0 < header.record_count == header.last_offset_delta + 1
        and (
            (header.producer_epoch >= 0 and header.base_sequence >= 0)
            if header.producer_id > NO_PRODUCER_ID
            else not header.is_transactional
        )
    )


def _check_count(header: BatchHeader) -> None:
    """Check that compression explains so many records in so few bytes."""
    packed_bytes = header.size - BATCH_OVERHEAD
    try:
        check_plausible_count(header.record_count, header.compression, packed_bytes)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _too_large(size: int, config: TopicConfig) -> KafkaError:
    if size > config.max_message_bytes:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}",
    )


def _check_client_rules(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch from a producer is 0, not {header.base_offset}",
        )
    if header.is_transactional and not header.has_producer:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if header.has_producer and header.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent the invalid epoch {header.producer_epoch}",
        )
