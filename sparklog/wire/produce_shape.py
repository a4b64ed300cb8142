"""Produce requests with one batch that repeat each other but for correlation id and records.

Owns: recognising the repetition in the bytes, so that what was decoded once need not be decoded
again, and the answer when the batch was taken.  A client that pipelines sends little else.  Must
not know what is in the records.  Property tests hold the answers to the codec's bytes.
"""

import struct
from typing import Final

from sparklog.errors import DecodeError
from sparklog.wire.codec import encode_response
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.primitives import read_uvarint, write_uvarint

#: The oldest version that is recognised: the first with today's fields in the answer but errors.
MIN_VERSION: Final = 5

_FLEXIBLE: Final = ProduceRequest.FLEXIBLE_FROM
_START: Final = 4
#: Behind api key, version and correlation id.
BEFORE_AT: Final = 8
_INT32: Final = struct.Struct(">i")
#: Tagged fields of partition, topic and request, all empty.
_NO_TAGS: Final = b"\0\0\0"
#: Base offset, log append time (ms), log start offset.
_TAKEN: Final = struct.Struct(">qqq")
_MALFORMED: Final = (DecodeError, IndexError, struct.error)


class ProduceShape:
    """All of a request with one batch but its correlation id and its records."""

    __slots__ = ("_answer_end", "_answer_start", "_behind", "_flexible", "_start", "before",
                 "size_at")  # fmt: skip

    def __init__(self, version: int, frame: memoryview, size_at: int, request: ProduceRequest):
        self._flexible = version >= _FLEXIBLE
        self._start = bytes(frame[:_START])
        #: Where the size of the records stands, and what stands between the correlation id and it.
        self.size_at = size_at
        self.before = bytes(frame[BEFORE_AT:size_at])
        self._behind = _NO_TAGS if self._flexible else b""
        self._answer_start, self._answer_end = _around_taken(version, request)

    @classmethod
    def of(cls, version: int, frame: memoryview, request: ProduceRequest) -> "ProduceShape | None":
        """The shape of the request in a frame; None if it has not exactly one batch.

        Nor has it one when its version is too old or it carries fields that nobody knows.
        """
        topics = request.topic_data
        if version < MIN_VERSION or len(topics) != 1 or len(topics[0].partition_data) != 1:
            return None
        records = topics[0].partition_data[0].records
        if records is None:
            return None
        flexible = version >= _FLEXIBLE
        size = bytearray()
        if flexible:
            write_uvarint(size, len(records) + 1)
        else:
            size += _INT32.pack(len(records))
        behind = len(_NO_TAGS) if flexible else 0
        shape = cls(version, frame, len(frame) - behind - len(records) - len(size), request)
        found = shape.match(frame)
        return shape if found is not None and len(found[1]) == len(records) else None

    def match(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """Correlation id and records of a frame of this shape, or None."""
        if frame[BEFORE_AT : self.size_at] != self.before:
            return None
        return self.split(frame)

    def split(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """``match`` for a frame that is known to have this shape's ``before``."""
        size_at = self.size_at
        if frame[:_START] != self._start:
            return None
        try:
            if self._flexible:
                size, start = read_uvarint(frame, size_at)
                end = start + size - 1
            else:
                start = size_at + _INT32.size
                end = start + _INT32.unpack_from(frame, size_at)[0]
            correlation_id: int = _INT32.unpack_from(frame, _START)[0]
        except _MALFORMED:
            return None
        if end < start or end + len(self._behind) != len(frame) or frame[end:] != self._behind:
            return None
        return correlation_id, frame[start:end]

    def answer(
        self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Header and body of the answer when the batch was taken."""
        return b"".join(
            (
                _INT32.pack(correlation_id),
                self._answer_start,
                _TAKEN.pack(base_offset, append_time_ms, log_start_offset),
                self._answer_end,
            )
        )


def _around_taken(version: int, request: ProduceRequest) -> tuple[bytes, bytes]:
    """What stands around the offsets in the answer, behind the correlation id."""
    (topic,) = request.topic_data
    (part,) = topic.partition_data
    marks = _TAKEN.pack(2**62 + 1, 2**62 + 2, 2**62 + 3)
    partition = PartitionProduceResponse(
        index=part.index,
        base_offset=2**62 + 1,
        log_append_time_ms=2**62 + 2,
        log_start_offset=2**62 + 3,
    )
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=(partition,)
            ),
        )
    )
    payload = encode_response(ProduceResponse, version, response, 0)
    start, found, end = payload[_INT32.size :].rpartition(marks)
    assert found, payload
    return start, end
