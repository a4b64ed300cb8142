"""Repeated Produce requests: requests of one topic that differ only in correlation id and batches.

Owns: recognising the repetition in the bytes, which saves decoding it again, and the response when
all batches were appended.  Must not know what records hold.  Pipelining clients send little else:
librdkafka one batch per request, Java's producer one batch per partition with records.  Property
tests compare the responses with the codec's bytes.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from sparklog.errors import DecodeError
from sparklog.wire.protocol.codec import encode_response
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog.wire.protocol.primitives import read_uvarint, write_uvarint

#: The oldest recognised version: the first with today's fields in a response without errors.
MIN_VERSION: Final = 5
#: Most partitions of a recognised request; larger requests are decoded, in slices.
PARTITIONS_MAX: Final = 500

_FLEXIBLE: Final = ProduceRequest.FLEXIBLE_FROM
_START: Final = 4
#: The offset behind api key, version and correlation id.
BEFORE_AT: Final = 8
_INT32: Final = struct.Struct(">i")
#: Tagged fields of a partition, and of topic and request, all empty.
_NO_TAGS: Final = b"\0"
_NO_TAGS_BEHIND: Final = b"\0\0"
#: Partition, error code, base offset, log append time (ms), log start offset.
_TAKEN: Final = struct.Struct(">ihqqq")
_MALFORMED: Final = (DecodeError, IndexError, struct.error)


#: One batch of a request: its partition, and the records.
SentPart: TypeAlias = tuple[int, memoryview]
#: The response to an appended batch: partition, error code 0, base offset, log append time (ms),
#: log start offset.
TakenPart: TypeAlias = tuple[int, int, int, int, int]


class ProduceShape:
    """A Produce request for one topic, without its correlation id and batches."""

    __slots__ = ("_answer_between", "_answer_end", "_answer_start", "_behind", "_behind_one",
                 "_first_at", "_flexible", "_one", "_start", "_start_of_one", "before",
                 "parts_at")  # fmt: skip

    def __init__(self, version: int, frame: memoryview, parts_at: int, topic: TopicProduceData):
        self._flexible = version >= _FLEXIBLE
        self._start = bytes(frame[:_START])
        #: The offset of the number of batches, and the bytes between the correlation id and it.
        self.parts_at = parts_at
        self.before = bytes(frame[BEFORE_AT:parts_at])
        self._behind = _NO_TAGS_BEHIND if self._flexible else b""
        self._one = _size(1, self._flexible)
        self._first_at = parts_at + len(self._one)
        self._behind_one = _NO_TAGS + _NO_TAGS_BEHIND if self._flexible else b""
        self._answer_start, self._answer_between, self._answer_end = _around_taken(version, topic)
        self._start_of_one = self._answer_start + _size(1, self._flexible)

    @classmethod
    def of(cls, version: int, frame: memoryview, request: ProduceRequest) -> "ProduceShape | None":
        """The shape of the request in a frame, or None.

        None if the batches are not of exactly one topic, the version is too old, or the request
        carries unknown fields.
        """
        if version < MIN_VERSION or len(request.topic_data) != 1:
            return None
        (topic,) = request.topic_data
        sent: list[tuple[int, int]] = []
        flexible = version >= _FLEXIBLE
        behind = len(_size(len(topic.partition_data), flexible)) + flexible * len(_NO_TAGS_BEHIND)
        for part in topic.partition_data:
            records = part.records
            if records is None:
                return None
            sent.append((part.index, len(records)))
            behind += _INT32.size + len(_size(len(records), flexible)) + len(records)
            behind += flexible * len(_NO_TAGS)
        shape = cls(version, frame, len(frame) - behind, topic)
        found = shape.match(frame)
        if found is None or [(index, len(records)) for index, records in found[1]] != sent:
            return None
        return shape

    def match(self, frame: memoryview) -> tuple[int, list[SentPart]] | None:
        """Correlation id and batches of a frame of this shape, or None."""
        if frame[BEFORE_AT : self.parts_at] != self.before:
            return None
        return self.split(frame)

    def split(self, frame: memoryview) -> tuple[int, list[SentPart]] | None:
        """``match`` for a frame that is known to have this shape's ``before``."""
        if frame[:_START] != self._start:
            return None
        at, flexible = self.parts_at, self._flexible
        try:
            correlation_id: int = _INT32.unpack_from(frame, _START)[0]
            first_at = self._first_at
            if frame[at:first_at] == self._one:  # the case of most clients, without a loop
                size, start = _read_size(frame, first_at + _INT32.size, flexible)
                at = start + size
                if size < 0 or at > len(frame) or frame[at:] != self._behind_one:
                    return None
                return correlation_id, [(_INT32.unpack_from(frame, first_at)[0], frame[start:at])]
            parts: list[SentPart] = []
            end = len(frame)
            count, at = _read_size(frame, at, flexible)
            if count > PARTITIONS_MAX:
                return None
            while count > len(parts):
                index = _INT32.unpack_from(frame, at)[0]
                size, start = _read_size(frame, at + _INT32.size, flexible)
                at = start + size
                if size < 0 or at > end:
                    return None
                parts.append((index, frame[start:at]))
                if flexible:
                    if frame[at]:
                        return None
                    at += len(_NO_TAGS)
        except _MALFORMED:
            return None
        if not parts or frame[at:] != self._behind:
            return None
        return correlation_id, parts

    def answer(self, correlation_id: int, taken: Sequence[TakenPart]) -> bytes:
        """Header and body of the response when all batches were appended."""
        start = self._answer_start + _size(len(taken), self._flexible)
        parts = self._answer_between.join([_TAKEN.pack(*part) for part in taken])
        return b"".join((_INT32.pack(correlation_id), start, parts, self._answer_end))

    def answer_one(self, correlation_id: int, *taken: *TakenPart) -> bytes:
        """``answer`` for one batch, the case of most clients."""
        return b"".join(
            (_INT32.pack(correlation_id), self._start_of_one, _TAKEN.pack(*taken), self._answer_end)
        )


def _read_size(frame: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """A length (-1 for null) and the offset behind it."""
    if not flexible:
        return _INT32.unpack_from(frame, at)[0], at + _INT32.size
    size = frame[at]
    if size < 0x80:
        return size - 1, at + 1
    size, start = read_uvarint(frame, at)
    return size - 1, start


def _size(size: int, flexible: bool) -> bytes:
    if not flexible:
        return _INT32.pack(size)
    out = bytearray()
    write_uvarint(out, size + 1)
    return bytes(out)


def _around_taken(version: int, topic: TopicProduceData) -> tuple[bytes, bytes, bytes]:
    """The bytes of a response between the correlation id and the number of partitions, between two
    partitions, and behind the last partition.

    The topic exists: no such name has the bytes that are searched for."""
    marks = [(2**30 + n, 0, 2**62 + n, 2**62 + n + 2, 2**62 + n + 4) for n in range(2)]
    payload = encode_response(ProduceResponse, version, _response(topic, marks), 0)
    first, second = (_TAKEN.pack(*mark) for mark in marks)
    start, found_first, rest = payload[_INT32.size :].partition(first)
    between, found_second, end = rest.partition(second)
    count = _size(len(marks), version >= _FLEXIBLE)
    assert found_first, payload
    assert found_second, payload
    assert start.endswith(count), payload
    return start[: -len(count)], between, end


def _response(topic: TopicProduceData, taken: Iterable[TakenPart]) -> ProduceResponse:
    parts = tuple(
        PartitionProduceResponse(
            index=index, error_code=error, base_offset=base, log_append_time_ms=when,
            log_start_offset=start,
        )
        for index, error, base, when, start in taken
    )  # fmt: skip
    answered = TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=parts
    )
    return ProduceResponse(responses=(answered,))
