"""A socket that says to a node whatever a test likes, and hears what the node says.

Owns: frames and their correlation ids.  Must not know which node it is, nor what is proper.
"""

import socket
import struct
from typing import Any
from uuid import UUID

from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import decode_records

#: Only what never comes takes so long: a machine that stands still for a while is no failure.
SECONDS_MAX = 60.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12
#: From here on a topic has an id instead of a name.
PRODUCE_BY_ID_VERSION, FETCH_BY_ID_VERSION = 13, 13
PING_CORRELATION_ID = 0x70696E67


class RawWire:
    """One connection."""

    def __init__(self, address: str, *, seconds_max: float = SECONDS_MAX) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds_max)
        self._next_correlation_id = 0

    def __enter__(self) -> "RawWire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reset(self) -> None:
        """End it as a crash would, not as a close."""
        linger_not_at_all = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not_at_all)
        self._socket.close()

    def frame(self) -> bytes | None:
        """The next frame, or None when the node has closed the connection."""
        length = self._exactly(4)
        return None if length is None else self._exactly(int.from_bytes(length, "big"))

    def is_closed_by_the_node(self) -> bool:
        """Waits for that, and fails where an answer comes instead."""
        found = self.frame()
        assert found is None, found
        return True

    def ask(self, request: Request, version: int) -> Any:
        self._next_correlation_id += 1
        self.send(framed(encode_request(request, version, self._next_correlation_id, "raw")))
        answer = self.frame()
        assert answer is not None, "closed instead of an answer"
        response: Any
        if isinstance(request, FetchRequest):
            correlation_id, response = decode_fetch_response(version, answer)
        else:
            kind = response_type(request.API_KEY)
            correlation_id, response = decode_response(kind, version, answer)
        assert correlation_id == self._next_correlation_id
        return response

    def answers_a_ping(self) -> bool:
        """Whether the node still talks here; answers to what was sent before are let go."""
        try:
            self.send(framed(encode_request(ApiVersionsRequest(), 0, PING_CORRELATION_ID, "raw")))
            while (answer := self.frame()) is not None:
                if answer[:4] == PING_CORRELATION_ID.to_bytes(4, "big"):
                    return True
        except ConnectionError:
            pass
        return False

    def produce(
        self,
        topic: str | UUID,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = 1,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, records, partition, acks, transactional_id)
        by_id = isinstance(topic, UUID)
        response = self.ask(request, PRODUCE_BY_ID_VERSION if by_id else PRODUCE_VERSION)
        [answered] = response.responses
        [result] = answered.partition_responses
        found: PartitionProduceResponse = result
        return found

    def fetch(
        self,
        topic: str | UUID,
        offset: int = 0,
        *,
        partition: int = 0,
        partition_max_bytes: int = 1 << 20,
        **more: Any,
    ) -> tuple[int, bytes]:
        """The error code (of the partition, or of the whole), and the records as they came."""
        by_id = isinstance(topic, UUID)
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        named: dict[str, Any] = {"topic_id": topic} if by_id else {"topic": topic}
        request = FetchRequest(topics=(FetchTopic(**named, partitions=(wanted,)),), **more)
        response = self.ask(request, FETCH_BY_ID_VERSION if by_id else FETCH_VERSION)
        if response.error_code:
            return response.error_code, b""
        [answered] = response.responses
        [data] = answered.partitions
        return data.error_code, bytes(data.records or b"")

    def values(self, topic: str, *, partition: int = 0) -> list[bytes | None]:
        """Every value of a partition."""
        found: list[bytes | None] = []
        while True:
            code, records = self.fetch(topic, len(found), partition=partition)
            assert code == 0
            if not records:
                return found
            decoded = decode_records(records, partial_tail=True)
            found += [record.value for record in decoded if record.offset >= len(found)]

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        try:
            while len(received) < count:
                more = self._socket.recv(count - len(received))
                if not more:
                    return None
                received += more
        except ConnectionError:
            return None
        return received


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def produce_request(
    topic: str | UUID,
    records: bytes | None,
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    named: dict[str, Any] = {"topic_id" if isinstance(topic, UUID) else "name": topic}
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=60_000,
        topic_data=(TopicProduceData(**named, partition_data=(data,)),),
    )
