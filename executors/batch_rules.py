"""What a batch must keep to before it may enter a partition, and how it is made ready for the log.

Owns: the checks of ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator`` that can be made on the header, and the stamping.  Must not know partitions, files
or clocks.

The header stands for the records: timestamp bounds are checked on the base and the largest
timestamp that it names, because single records are never decoded here.
"""

from sparklog.config import TopicConfig
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import NO_TIMESTAMP, TimestampType
from sparklog.wire.batch import (
    BATCH_OVERHEAD,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    check_client_batch,
    iter_batches,
    read_header,
    stamp,
)


def read_client_batch(records: Buffer | None, config: TopicConfig) -> BatchHeader:
    """The header of the one batch that a client may send to a partition in one request.

    Raises KafkaError with the code that Kafka answers: INVALID_RECORD, CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_TXN_STATE.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request needs one batch, found none")
    header = _only_batch(records)
    _check_size(header, config)
    check_batch(records, 0, header)
    check_client_batch(header)
    _check_client_rules(header)
    return header


def check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Bounds of CreateTime around the broker's clock.  Raises INVALID_TIMESTAMP."""
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
    """The batch as it goes to the log, and its header as it then reads.

    ``append_time`` is NO_TIMESTAMP for CreateTime.  Bytes that may be written to are stamped in
    place, others get a stamped copy of their header in front.
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


def _stamped(
    header: BatchHeader, base_offset: int, leader_epoch: int, when: int | None
) -> BatchHeader:
    """The header after stamping (but for its CRC); ``dataclasses.replace`` takes five times as
    long, and this runs once per batch."""
    by_broker = when is not None
    return BatchHeader(
        base_offset=base_offset,
        batch_length=header.batch_length,
        partition_leader_epoch=leader_epoch,
        magic=header.magic,
        crc=header.crc,
        attributes=header.attributes | TIMESTAMP_TYPE_BIT if by_broker else header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp if when is None else when,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )


def _only_batch(records: Buffer) -> BatchHeader:
    if len(records) >= BATCH_OVERHEAD:
        header = read_header(records)
        if header.magic == MAGIC_V2 and header.size == len(records):
            return header
    # Nearly never: find out what is wrong with it.
    try:
        headers = [header for header, _ in iter_batches(records)]
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    raise KafkaError(
        ErrorCode.INVALID_RECORD,
        f"a produce request carries exactly one batch per partition, found {len(headers)}",
    )


def _check_size(header: BatchHeader, config: TopicConfig) -> None:
    if header.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if header.size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {header.size} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_client_rules(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch from a producer is 0, not {header.base_offset}",
        )
    if header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            "transactions are not available: the batch belongs to no ongoing transaction",
        )
    if header.has_producer and header.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent the invalid epoch {header.producer_epoch}",
        )
