"""Produce requests given to a broker as if they had arrived together, and their answers."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sparklog.transport import EncodedResponse, HandlerResult, ParkedResponse, PendingResponse
from sparklog.wire.protocol.codec import decode_response
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
)
from sparklog.wire.protocol.produce import encode_produce_request
from tests.unit.executors.broker.broker_rig import Rig, produce_request

VERSION = 11


def frame(
    correlation_id: int,
    records: bytes | None,
    *,
    topic: Any = "t",
    partition: int = 0,
    acks: int = 1,
    version: int = VERSION,
) -> memoryview:
    request = produce_request(topic, records, partition, acks)
    return memoryview(
        bytearray(b"".join(encode_produce_request(version, correlation_id, "me", request)))
    )


def frame_of_many(
    correlation_id: int,
    sent: Iterable[tuple[int, bytes]],
    *,
    topic: Any = "t",
    acks: int = 1,
    version: int = VERSION,
) -> memoryview:
    """As Java's producer asks: a batch for each of several partitions."""
    request = produce_request(topic, None, 0, acks)
    parts = tuple(PartitionProduceData(index=index, records=records) for index, records in sent)
    (only,) = request.topic_data
    request = replace(request, topic_data=(replace(only, partition_data=parts),))
    return memoryview(
        bytearray(b"".join(encode_produce_request(version, correlation_id, "me", request)))
    )


def offsets(answer: "HandlerResult | EncodedResponse") -> tuple[int, list[tuple[int, int, int]]]:
    """Correlation id; partitions, codes and base offsets."""
    correlation_id, parts = results(answer)
    return correlation_id, [(part.index, part.error_code, part.base_offset) for part in parts]


def receive(rig: Rig, frames: Iterable[memoryview]) -> list[HandlerResult]:
    """Frames that arrive together at a connection, and the answers so far."""
    broker = rig.brokers[1]
    assert broker._server is not None
    assert broker._dispatcher is not None
    connection = next(iter(broker._server.connections))
    left, answers = deque(frames), []
    while left:
        answers += broker._dispatcher(connection, left)
    return answers


def results(
    answer: "HandlerResult | EncodedResponse", version: int = VERSION
) -> tuple[int, tuple[PartitionProduceResponse, ...]]:
    """Correlation id and partitions of an answer."""
    assert isinstance(answer, Sequence)
    payload = b"".join(part for part in answer if isinstance(part, bytes))
    correlation_id, response = decode_response(ProduceResponse, version, payload)
    (found,) = [topic.partition_responses for topic in response.responses]
    return correlation_id, found


def result(answer: HandlerResult, version: int = VERSION) -> tuple[int, PartitionProduceResponse]:
    """Of an answer about one partition."""
    correlation_id, (found,) = results(answer, version)
    return correlation_id, found


class Late:
    """An answer that waits: the first of its kind by a future, those behind it in their places."""

    def __init__(self, answer: ParkedResponse | PendingResponse) -> None:
        self._answer = answer
        self._future = None
        if isinstance(answer, ParkedResponse):
            self._future = asyncio.ensure_future(answer.awaitable)

    @property
    def known(self) -> bool:
        if self._future is not None:
            return self._future.done()
        assert isinstance(self._answer, PendingResponse)
        return self._answer.completed

    @property
    def reply(self) -> EncodedResponse | None:
        if self._future is not None:
            assert isinstance(self._answer, ParkedResponse)
            return self._answer.finish(self._future)
        assert isinstance(self._answer, PendingResponse)
        return self._answer.reply


def codes(answers: Iterable[HandlerResult]) -> list[tuple[int, int, int]]:
    found = [result(answer) for answer in answers]
    return [(number, part.error_code, part.base_offset) for number, part in found]


def count_writes(rig: Rig) -> list[str]:
    writes: list[str] = []
    rig.disk.faults.slow = lambda operation, path: (
        writes.append(path.split("/")[-2])
        if operation == "writev" and path.endswith(".log")
        else None
    )
    return writes
