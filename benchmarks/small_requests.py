"""Requests with small batches for many partitions, beside Kafka: the CPU of the servers for each.

Owns: the requests and their figures.  Must not know how a server is started.  The load of a real
client depends on the machine: a client that is slow sends smaller batches.  So prepared frames go
out here, the same ones to both sides, and CPU is counted per request.
"""

import time
from collections.abc import Sequence

from rich.console import Console

from benchmarks.kafka_nodes import Pair, Side, pair
from benchmarks.librdkafka import new_topic
from benchmarks.load import Caller
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.produce_frames import CLIENT, LAST_NAMED, framed, produce_frame
from benchmarks.scale import Scale
from sparklog.client.blocking import BlockingClient
from sparklog.types import MAX_INT32, Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog.wire.protocol.produce import ProduceResponse
from sparklog.wire.records.builder import Record, encode_batch

PARTITIONS = (10, 1000)
_VALUE_BYTES = 100
_RECORDS = 2
_PRODUCES = 20_000
#: Requests that are sent at once; twice as many are in flight.
_AT_ONCE = 50
#: Partitions that are fetched in one run.
_FETCHED = 20_000
_FETCH_BYTES = 4_000
_LENGTH_BYTES = 4
_NO_SESSION_EPOCH = -1


def small_requests(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each, with topics of few and of many partitions."""
    found: list[Measured] = []
    with pair(1) as both:
        for count in PARTITIONS:
            console.print(f"small requests: {count:,} partitions")
            found += _measured(both, count, scale)
    return found


def _measured(both: Pair, partitions: int, scale: Scale) -> list[Measured]:
    words = f"{partitions:,} partitions in turns"
    with (
        new_topic(both.ours.bootstrap, partitions, 1) as ours,
        new_topic(both.kafka.bootstrap, partitions, 1) as theirs,
    ):
        return take_turns(
            [
                Figure(
                    key=f"small/produce/{partitions}",
                    what=f"CPU of a produce request with one batch of {_RECORDS} records, {words}",
                    unit="us",
                    less_is_better=True,
                ),
                Figure(
                    key=f"small/fetch/{partitions}",
                    what=f"CPU of a partition with {_FETCH_BYTES // 1000} KB in a fetch, {words}",
                    unit="us",
                    less_is_better=True,
                ),
                Figure(
                    key=f"small/newest/{partitions}",
                    what=f"CPU of a partition with its newest batch in a fetch, {words}",
                    unit="us",
                    less_is_better=True,
                ),
            ],
            lambda: _run(both.ours, ours, partitions),
            lambda: _run(both.kafka, theirs, partitions),
            scale.rounds,
        )


def _run(side: Side, topic: str, partitions: int) -> tuple[float, float, float]:
    """Microseconds of CPU per produce request, and per partition of two kinds of fetches."""
    with Caller(_leader(side)) as caller:
        batch = _batch()
        frames = [produce_frame(number, batch, topic=topic) for number in range(partitions)]
        _, produced = decode_response(ProduceResponse, LAST_NAMED, caller.call(frames[0]))
        assert [p.error_code for t in produced.responses for p in t.partition_responses] == [0]
        turns = _PRODUCES // partitions
        produce_us = _cpu_us(side, caller, frames * turns, _AT_ONCE) / (turns * partitions)
        old = _fetch_frame(topic, [1] * partitions, _FETCH_BYTES)
        ends = [part.high_watermark for part in _fetched(caller, old)]
        newest = _fetch_frame(topic, [end - _RECORDS for end in ends], MAX_INT32)
        assert all(
            len(records_view(part.records)) == len(batch) for part in _fetched(caller, newest)
        )
        turns = _FETCHED // partitions
        old_us, newest_us = (
            _cpu_us(side, caller, [fetch] * turns, 1) / (turns * partitions)
            for fetch in (old, newest)
        )
    return produce_us, old_us, newest_us


def _fetched(caller: Caller, frame: bytes) -> list[PartitionData]:
    """The response of a fetch about each partition, in the order of the partitions."""
    _, response = decode_response(FetchResponse, LAST_NAMED, caller.call(frame))
    found = [part for topic in response.responses for part in topic.partitions]
    assert all(part.records for part in found)
    return sorted(found, key=lambda part: part.partition_index)


def _cpu_us(side: Side, caller: Caller, frames: Sequence[bytes], at_once: int) -> float:
    """Microseconds of CPU of all servers.  All responses have the same size."""
    answer_bytes = len(caller.call(frames[0])) + _LENGTH_BYTES
    loads = [b"".join(frames[at : at + at_once]) for at in range(0, len(frames), at_once)]
    before = side.cpu_seconds()
    caller.pump(loads, answer_bytes * at_once)
    return (side.cpu_seconds() - before) * 1e6


def _leader(side: Side) -> Endpoint:
    with BlockingClient([Endpoint.parse(side.bootstrap)], client_id=CLIENT) as client:
        (node,) = (node for number, node in client.metadata([]).nodes.items() if number)
        return node


def _fetch_frame(topic: str, offsets: Sequence[int], bytes_max: int) -> bytes:
    """A fetch of each partition from its offset on."""
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=bytes_max)
        for number, offset in enumerate(offsets)
    )
    request = FetchRequest(
        session_epoch=_NO_SESSION_EPOCH,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=MAX_INT32,
        topics=(FetchTopic(topic=topic, partitions=parts),),
    )
    return framed(encode_request(request, LAST_NAMED, 1, CLIENT))


def _batch() -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return encode_batch([Record(value=bytes(_VALUE_BYTES), timestamp=now_ms)] * _RECORDS)
