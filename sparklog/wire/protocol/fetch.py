"""The hand-written codec of Fetch responses: records in files are sent as they are.

Owns: the byte layout of Fetch responses 4 to 18 (KIP-74, KIP-227, KIP-392, KIP-482, KIP-516,
KIP-595, KIP-951).  Must not know what is in the records.  The values are those of
``messages.fetch``; the codec can read and write them too (with records in memory), and a property
test holds the two to the same bytes.
"""

import struct
from typing import Any, Final

from sparklog.slices import SLICE_UNITS, Slices
from sparklog.wire.protocol import codec
from sparklog.wire.protocol.encoders import Encoder, compile_encoder
from sparklog.wire.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.protocol.primitives import (
    uuid_to_bytes,
    write_compact_string,
    write_string,
    write_uvarint,
)
from sparklog.wire.protocol.schema import Region, SendableRecords, remembered

MIN_VERSION: Final = FetchResponse.MIN_VERSION
MAX_VERSION: Final = FetchResponse.MAX_VERSION

_FLEXIBLE: Final = FetchResponse.FLEXIBLE_FROM
_LOG_START: Final = 5
_SESSIONS: Final = 7
_PREFERRED_REPLICA: Final = 11
_TOPIC_IDS: Final = 13
_NODE_ENDPOINTS: Final = 16

_INT32: Final = struct.Struct(">i")
_pack_int32: Final = _INT32.pack
_pack_int64_pair: Final = struct.Struct(">qq").pack
_pack_session: Final = struct.Struct(">ihi").pack
_pack_partition: Final = struct.Struct(">ihqqq").pack
_pack_partition_v4: Final = struct.Struct(">ihqq").pack
_DEFAULTS: Final = PartitionData()

#: Units of encoding one partition.
PARTITION_UNITS: Final = 4
#: Records in memory up to this size are copied: cheaper than a part of their own.
_COPIED_BYTES_MAX: Final = 4096
#: A part with copied records takes no more of them beyond this size.
_PART_BYTES_MAX: Final = 16 * 1024

Buffer = bytes | bytearray | memoryview


def encode_fetch_response(
    version: int, correlation_id: int, response: FetchResponse
) -> list[Buffer | Region]:
    """Header and body as parts to be sent in order, without the length in front.

    Records are put into the list as they are, bytes or an object with ``size``, except that small
    records in memory are copied into the part before.  ``parts_size`` is the length of all parts.
    """
    flexible = version >= _FLEXIBLE
    out = _start(version, correlation_id, response)
    parts: list[Buffer | Region] = [out]
    for topic in response.responses:
        _write_topic_name(out, version, topic)
        _write_size(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            out = _write_partition(parts, out, version, partition)
        if flexible:
            out.append(0)
    _end(parts, out, version, response)
    return parts


def encode_fetch_response_in_slices(
    version: int, correlation_id: int, response: FetchResponse
) -> Slices[list[Buffer | Region]]:
    """``encode_fetch_response`` in slices."""
    flexible = version >= _FLEXIBLE
    out = _start(version, correlation_id, response)
    parts: list[Buffer | Region] = [out]
    spent = 0
    for topic in response.responses:
        _write_topic_name(out, version, topic)
        _write_size(out, len(topic.partitions), flexible)
        spent += PARTITION_UNITS
        for partition in topic.partitions:
            out = _write_partition(parts, out, version, partition)
            spent += PARTITION_UNITS
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        if flexible:
            out.append(0)
    yield spent
    _end(parts, out, version, response)
    return parts


def _start(version: int, correlation_id: int, response: FetchResponse) -> bytearray:
    """The bytes in front of the first topic."""
    out = bytearray(_pack_int32(correlation_id))
    flexible = version >= _FLEXIBLE
    if flexible:
        out.append(0)
    if version >= _SESSIONS:
        out += _pack_session(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        out += _pack_int32(response.throttle_time_ms)
    _write_size(out, len(response.responses), flexible)
    return out


def _end(
    parts: list[Buffer | Region], out: bytearray, version: int, response: FetchResponse
) -> None:
    """The bytes behind the last topic."""
    if version >= _FLEXIBLE:
        _write_response_tags(out, version, response)
    if not out:
        parts.pop()


def parts_size(parts: list[Buffer | Region]) -> int:
    """The length of a frame made of these parts."""
    return sum(
        len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size
        for part in parts
    )


def _write_topic_name(out: bytearray, version: int, topic: FetchableTopicResponse) -> None:
    if version >= _TOPIC_IDS:
        out += uuid_to_bytes(topic.topic_id)
    elif version >= _FLEXIBLE:
        write_compact_string(out, topic.topic)
    else:
        write_string(out, topic.topic)


def _write_partition(
    parts: list[Buffer | Region], out: bytearray, version: int, partition: PartitionData
) -> bytearray:
    """Write a whole partition.  Returns: the buffer for the bytes that follow."""
    flexible = version >= _FLEXIBLE
    _write_partition_start(out, version, partition)
    out = _add_records(parts, out, partition.records, flexible)
    if flexible:
        _write_partition_tags(out, version, partition)
    return out


def _write_partition_start(out: bytearray, version: int, partition: PartitionData) -> None:
    """Write the fields in front of the records' length."""
    if version >= _LOG_START:
        out += _pack_partition(
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    else:
        out += _pack_partition_v4(
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
        )
    _write_aborted(out, version, partition.aborted_transactions)
    if version >= _PREFERRED_REPLICA:
        out += _pack_int32(partition.preferred_read_replica)


def _write_aborted(
    out: bytearray, version: int, aborted: tuple[AbortedTransaction, ...] | None
) -> None:
    flexible = version >= _FLEXIBLE
    _write_size(out, -1 if aborted is None else len(aborted), flexible)
    for transaction in aborted or ():
        out += _pack_int64_pair(transaction.producer_id, transaction.first_offset)
        if flexible:
            out.append(0)


def _add_records(
    parts: list[Buffer | Region], out: bytearray, records: SendableRecords | None, flexible: bool
) -> bytearray:
    """Add the records behind their length.  Returns: the buffer for the bytes that follow."""
    if records is None:
        _write_size(out, -1, flexible)
        return out
    if isinstance(records, (bytes, bytearray, memoryview)):
        size = len(records)
        _write_size(out, size, flexible)
        if size <= _COPIED_BYTES_MAX and len(out) < _PART_BYTES_MAX:
            out += records
            return out
    else:
        size = records.size
        _write_size(out, size, flexible)
    if not size:
        return out
    following = bytearray()
    parts += (records, following)
    return following


def _write_size(out: bytearray, size: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, size + 1)
    else:
        out += _pack_int32(size)


def _write_partition_tags(out: bytearray, version: int, partition: PartitionData) -> None:
    if (
        partition.current_leader is _DEFAULTS.current_leader
        and partition.diverging_epoch is _DEFAULTS.diverging_epoch
        and partition.snapshot_id is _DEFAULTS.snapshot_id
    ):
        # Defaults are single objects, so this is the common case.
        out.append(0)
        return
    tags = [
        (tag, value)
        for tag, value, default in (
            (0, partition.diverging_epoch, _DEFAULTS.diverging_epoch),
            (1, partition.current_leader, _DEFAULTS.current_leader),
            (2, partition.snapshot_id, _DEFAULTS.snapshot_id),
        )
        if value != default
    ]
    out.append(len(tags))
    for tag, value in tags:
        encoded = bytearray()
        _encoder(type(value), version)(encoded, value, [1, 0])
        out += bytes((tag, len(encoded)))
        out += encoded


def _write_response_tags(out: bytearray, version: int, response: FetchResponse) -> None:
    if version < _NODE_ENDPOINTS or not response.node_endpoints:
        out.append(0)
        return
    encoded = bytearray()
    write_uvarint(encoded, len(response.node_endpoints) + 1)
    for endpoint in response.node_endpoints:
        _encoder(type(endpoint), version)(encoded, endpoint, [1, 0])
    out += b"\x01\x00"
    write_uvarint(out, len(encoded))
    out += encoded


@remembered
def _encoder(struct_type: type[Any], version: int) -> Encoder:
    return compile_encoder(struct_type, version, True)


def decode_fetch_response(version: int, payload: Buffer) -> tuple[int, FetchResponse]:
    """The correlation id and the response; records are views of ``payload``.

    Raises DecodeError.
    """
    return codec.decode_response(FetchResponse, version, payload)


def records_view(records: SendableRecords | None) -> memoryview:
    """Records in memory as a view; null is empty."""
    if records is None:
        return memoryview(b"")
    assert isinstance(records, (bytes, bytearray, memoryview)), "a region must be sent, not read"
    return memoryview(records)


__all__ = [
    "MAX_VERSION",
    "MIN_VERSION",
    "AbortedTransaction",
    "FetchResponse",
    "FetchableTopicResponse",
    "PartitionData",
    "decode_fetch_response",
    "encode_fetch_response",
    "encode_fetch_response_in_slices",
    "parts_size",
    "records_view",
]
