"""Produce requests that are made once and sent often.

Owns: one batch of a given size, and the frames that carry it.  Must not know what is measured.
"""

import time

from benchmarks.load import Caller
from sparklog.types import Endpoint
from sparklog.wire.framing.frame_length import frame_length
from sparklog.wire.protocol.codec import decode_response
from sparklog.wire.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    encode_produce_request,
)
from sparklog.wire.records.builder import Record, encode_batch

BATCH_BYTES = 16 * 1024
TOPIC = "bench"
CLIENT = "bench"
#: The last version that gives topics by name instead of id.
LAST_NAMED = 12
_RECORD_BYTES = 100


def batch_of_16_kb() -> bytes:
    """Return one batch of exactly ``BATCH_BYTES`` bytes."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(value=bytes(_RECORD_BYTES), timestamp=now_ms)] * (BATCH_BYTES // 120)
    missing = BATCH_BYTES - len(encode_batch([*records, Record(value=b"", timestamp=now_ms)]))
    for size in range(missing, 0, -1):
        batch = encode_batch([*records, Record(value=bytes(size), timestamp=now_ms)])
        if len(batch) == BATCH_BYTES:
            return batch
    raise AssertionError("no batch of this size")


def produce_frame(number: int, batch: bytes, *, acks: int = 1, topic: str = TOPIC) -> bytes:
    part = PartitionProduceData(index=number, records=batch)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(part,)),),
    )
    return framed(b"".join(encode_produce_request(LAST_NAMED, 1, CLIENT, request)))


def accepted(endpoint: Endpoint, frame: bytes) -> int:
    """Send one batch, and return the size in bytes of a response without error."""
    with Caller(endpoint) as caller:
        answer = caller.call(frame)
    _, response = decode_response(ProduceResponse, LAST_NAMED, answer)
    errors = [p.error_code for topic in response.responses for p in topic.partition_responses]
    assert errors == [0], response
    return len(answer) + 4


def framed(payload: bytes) -> bytes:
    return frame_length(len(payload)) + payload
