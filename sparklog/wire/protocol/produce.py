"""The hand-written codec of Produce, for brokers and producers: records are not copied.

Owns: the buffers around the records of a Produce request (versions 3 to 13).  Must not know what
records hold.  The values are those of ``messages.produce``.
"""

import struct
from dataclasses import dataclass
from typing import Final

from sparklog.wire.protocol import codec
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog.wire.protocol.primitives import (
    uuid_to_bytes,
    write_compact_string,
    write_string,
    write_uvarint,
)
from sparklog.wire.protocol.schema import Records

MIN_VERSION: Final = ProduceRequest.MIN_VERSION
MAX_VERSION: Final = ProduceRequest.MAX_VERSION
#: Advertised as the minimum, though refused: librdkafka decides by it about compression
#: (KAFKA-18659).
ADVERTISED_MIN_VERSION: Final = 0
#: From this version on, requests name topics by id (KIP-516).
TOPIC_IDS_FROM: Final = 13
#: From this version on, batches may be compressed with zstd (KIP-110).
ZSTD_FROM: Final = 7

_FLEXIBLE: Final = ProduceRequest.FLEXIBLE_FROM
_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ScatteredRecords:
    """Records in several buffers, one behind the other, for ``encode_produce_request`` alone."""

    parts: tuple[Buffer, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """The request behind a header; ``records`` are views of ``body``.

    Raises DecodeError; trailing bytes are refused.
    """
    return codec.decode_body(ProduceRequest, version, body)


def encode_produce_response(version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    """Header and body, without the length in front."""
    return codec.encode_response(ProduceResponse, version, response, correlation_id)


def encode_produce_request(
    version: int, correlation_id: int, client_id: str | None, request: ProduceRequest
) -> list[Buffer]:
    """Header and body as buffers, the records as they are, without the length in front."""
    out = bytearray(
        codec.request_header_bytes(ProduceRequest.API_KEY, version, correlation_id, client_id)
    )
    parts: list[Buffer] = [out]
    flexible = version >= _FLEXIBLE
    _write_name(out, request.transactional_id, flexible)
    out += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    _write_size(out, len(request.topic_data), flexible)
    for topic in request.topic_data:
        if version >= TOPIC_IDS_FROM:
            out += uuid_to_bytes(topic.topic_id)
        else:
            _write_name(out, topic.name, flexible)
        _write_size(out, len(topic.partition_data), flexible)
        for partition in topic.partition_data:
            out += _INT32.pack(partition.index)
            out = _add_records(parts, out, partition.records, flexible)
            _end_struct(out, flexible)
        _end_struct(out, flexible)
    _end_struct(out, flexible)
    return [part for part in parts if len(part)]


def _write_name(out: bytearray, name: str | None, flexible: bool) -> None:
    if flexible:
        write_compact_string(out, name)
    else:
        write_string(out, name)


def _write_size(out: bytearray, size: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, size + 1)
    else:
        out += _INT32.pack(size)


def _end_struct(out: bytearray, flexible: bool) -> None:
    if flexible:
        out.append(0)


def _add_records(
    parts: list[Buffer], out: bytearray, records: Records | ScatteredRecords | None, flexible: bool
) -> bytearray:
    """Add the records behind their length.  Returns: the buffer for the bytes that follow."""
    if records is None:
        _write_size(out, -1, flexible)
        return out
    _write_size(out, len(records), flexible)
    following = bytearray()
    parts += records.parts if isinstance(records, ScatteredRecords) else (records,)
    parts.append(following)
    return following


def decode_produce_response(version: int, payload: Buffer) -> tuple[int, ProduceResponse]:
    """The correlation id and the response.  Raises DecodeError."""
    return codec.decode_response(ProduceResponse, version, payload)


__all__ = [
    "ADVERTISED_MIN_VERSION",
    "MAX_VERSION",
    "MIN_VERSION",
    "TOPIC_IDS_FROM",
    "ZSTD_FROM",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
    "decode_produce_request",
    "decode_produce_response",
    "encode_produce_request",
    "encode_produce_response",
]
