"""The cost of one request for a broker with many partitions, against a broker with ten.

Owns: the requests and their ratios.  Must not know how a row is shown.  All brokers run at the same
time and are measured in turns, by the CPU that their processes use per request.  Other load on the
machine takes time from all of them alike, but adds nothing to this CPU.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Row
from benchmarks.load import Caller
from benchmarks.servers import cpu_seconds, serve
from sparklog.client.blocking import BlockingClient
from sparklog.types import Endpoint, OffsetSpec, TopicPartition
from sparklog.wire.framing.frame_length import frame_length
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    encode_produce_request,
)
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import Record, encode_batch

#: The first number is the base of the ratios.
COUNTS = (10, 100, 1_000, 4_000)
ASKED = 1.5
ROUNDS = 5

_REQUESTS = 4_800
_AT_ONCE = 8
_CLIENT = "bench"
#: The topic with many partitions, of which the first is used.
_MANY = "many"
#: The topic with one partition, beside the large topic.
_ONE = "one"
_VERSION = 12
#: Bytes of a fetch: one batch.
_FETCH_BYTES = 1 << 11


@dataclass(frozen=True, slots=True)
class _Broker:
    """One of the brokers under test."""

    partitions: int
    pid: int
    endpoint: Endpoint


#: Makes the frames of one run, whose responses all have the same size.
_Load = Callable[[_Broker, Caller], Sequence[bytes]]


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    loads: Mapping[str, _Load] = {
        "produce to one partition": _produces,
        "fetch of one partition, no session": _fetches,
        "fetch of a session of them all, one active": _session_fetches,
        "metadata of one topic": _metadata,
        "ListOffsets of one partition": _list_offsets,
    }
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name, ExitStack() as stack:
        brokers = []
        for count in COUNTS:
            console.print(f"scaling: starting a broker with {count:,} partitions")
            brokers.append(stack.enter_context(_broker(Path(name) / str(count), count)))
        found: list[Row] = []
        for what, load in loads.items():
            console.print(f"scaling: {what}, {ROUNDS} rounds")
            costs = _costs(brokers, load)
            found += [
                Row(
                    what=f"{what}, {broker.partitions:,} partitions",
                    unit="us CPU a request",
                    ours=costs[broker],
                    base=costs[brokers[0]],
                    asked=ASKED,
                    at_most=True,
                )
                for broker in brokers[1:]
            ]
        return found


@contextmanager
def _broker(folder: Path, partitions: int) -> Iterator[_Broker]:
    with (
        serve(folder, brokers=1) as served,
        BlockingClient([served.bootstrap], client_id=_CLIENT) as client,
    ):
        client.admin.create_topic(_MANY, partitions)
        client.admin.create_topic(_ONE, 1)
        for topic in (_MANY, _ONE):
            # Retried until the broker has opened all partitions.
            client.produce(TopicPartition(topic, 0), [_batch()], acks=1)
        leader = client.topic(_ONE).partitions[0].leader
        (pid,) = served.broker_pids()
        yield _Broker(partitions, pid, client.metadata([]).nodes[leader])


def _costs(brokers: Sequence[_Broker], load: _Load) -> dict[_Broker, float]:
    """Microseconds of CPU per request: the median of rounds in turns, after a warm-up."""
    runs: dict[_Broker, list[float]] = {broker: [] for broker in brokers}
    for _ in range(ROUNDS + 1):
        for broker in brokers:
            with Caller(broker.endpoint) as caller:
                frames = load(broker, caller)
                answer_bytes = len(caller.call(frames[0])) + 4
                groups = [
                    b"".join(frames[at : at + _AT_ONCE]) for at in range(1, len(frames), _AT_ONCE)
                ]
                before = cpu_seconds(broker.pid)
                caller.pump(groups, answer_bytes * _AT_ONCE)
                used = cpu_seconds(broker.pid) - before
            runs[broker].append(used / (len(frames) - 1) * 1e6)
    return {broker: statistics.median(found[1:]) for broker, found in runs.items()}


def _produces(_: _Broker, caller: Caller) -> Sequence[bytes]:
    del caller
    part = PartitionProduceData(index=0, records=_batch())
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=_MANY, partition_data=(part,)),),
    )
    frame = _framed(b"".join(encode_produce_request(_VERSION, 1, _CLIENT, request)))
    return [frame] * (_REQUESTS + 1)


def _fetches(_: _Broker, caller: Caller) -> Sequence[bytes]:
    del caller
    return [_fetch_frame(partitions=1)] * (_REQUESTS + 1)


def _session_fetches(broker: _Broker, caller: Caller) -> Sequence[bytes]:
    """Fetches of a session.  The client does not move on, so it gets the same records each time."""
    first = caller.call(_fetch_frame(partitions=broker.partitions, session=(0, 0)))
    _, response = decode_response(FetchResponse, _VERSION, first)
    assert response.session_id > 0, response.error_code
    assert not any(p.error_code for topic in response.responses for p in topic.partitions)
    return [
        _fetch_frame(partitions=0, session=(response.session_id, epoch))
        for epoch in range(1, _REQUESTS + 2)
    ]


def _metadata(_: _Broker, caller: Caller) -> Sequence[bytes]:
    del caller
    request = MetadataRequest(topics=(MetadataRequestTopic(name=_ONE),))
    return [_framed_request(request)] * (_REQUESTS + 1)


def _list_offsets(_: _Broker, caller: Caller) -> Sequence[bytes]:
    del caller
    part = ListOffsetsPartition(partition_index=0, timestamp=OffsetSpec.LATEST)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=_MANY, partitions=(part,)),))
    return [_framed_request(request, ListOffsetsRequest.MAX_VERSION)] * (_REQUESTS + 1)


def _fetch_frame(*, partitions: int, session: tuple[int, int] = (0, -1)) -> bytes:
    """A fetch of the first partitions of the large topic, each from its start."""
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=_FETCH_BYTES)
        for number in range(partitions)
    )
    session_id, epoch = session
    request = FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        topics=(FetchTopic(topic=_MANY, partitions=parts),) if parts else (),
    )
    return _framed_request(request)


def _framed_request(request: Request, version: int = _VERSION) -> bytes:
    return _framed(encode_request(request, version, 1, _CLIENT))


def _framed(payload: bytes) -> bytes:
    return frame_length(len(payload)) + payload


def _batch() -> bytes:
    """A record of a kilobyte, with a timestamp that retention does not delete."""
    now_ms = time.time_ns() // 1_000_000
    return encode_batch([Record(value=bytes(1000), timestamp=now_ms)])
