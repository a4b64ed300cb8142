"""The cost of a broker, against the least cost of any server.

Owns: the loads on the produce and fetch paths, start-up and memory.  Must not know how a row is
shown.  Both sides of a ratio get the same frames, or requests for the same bytes, from the same
client, in turns.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.bare import GREETING
from benchmarks.harness import Row, in_turns
from benchmarks.load import Caller, pump_all, warm_page_cache
from benchmarks.produce_frames import (
    BATCH_BYTES,
    CLIENT,
    LAST_NAMED,
    TOPIC,
    accepted,
    batch_of_16_kb,
    framed,
    produce_frame,
)
from benchmarks.servers import CpuMeter, bare, resident_megabytes, serve
from sparklog.client.blocking import BlockingClient
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.produce import (
    ProduceResponse,
)

CONNECTIONS = 4
#: Requests that a connection sends at once.  Twice as many are in flight.
PIPELINED = 16
FETCH_BYTES = 1024 * 1024
#: Bytes of the log that fetches walk over, so that they do not all send one warm megabyte.
FETCHED_LOG_BYTES = 64 * 1024 * 1024
FETCHES_AT_ONCE = 8
ROUNDS = 9

#: Requests of one timed run.
_PRODUCES = 12_000
_FETCHES = 1_600
_SETTLE_S = 2.0
_LOOK_S = 0.01
_STARTS = 3


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        folder = Path(name)
        return [*_starts(folder, console), *_paths(folder, console)]


def _starts(folder: Path, console: Console) -> list[Row]:
    console.print(f"broker: starting 3 brokers {_STARTS} times")
    seconds, megabytes = [], []
    for number in range(_STARTS):
        with serve(folder / f"start-{number}", brokers=3) as served:
            seconds.append(served.seconds_to_ready)
            time.sleep(_SETTLE_S)
            megabytes += [resident_megabytes(pid) for pid in served.broker_pids()]
    return [
        Row(
            what="resident memory of an idle broker",
            unit="MB",
            ours=max(megabytes),
            base=None,
            asked=80,
            at_most=True,
        ),
        Row(
            what="serve --engine process, 3 brokers, to ready",
            unit="s",
            ours=statistics.median(seconds),
            base=None,
            asked=5,
            at_most=True,
        ),
    ]


def _paths(folder: Path, console: Console) -> list[Row]:
    with (
        serve(folder / "data", brokers=1) as served,
        BlockingClient([served.bootstrap], client_id=CLIENT) as client,
    ):
        (pid,) = served.broker_pids()
        ours = _Broker(client, pid, folder / "data" / "broker-1")
        return [
            _produce(ours, folder / "bare.log", console),
            _fetch(ours, folder / "bare.data", console),
        ]


@dataclass(frozen=True, slots=True)
class _Broker:
    """The broker under load."""

    client: BlockingClient
    pid: int
    log_dir: Path

    @contextmanager
    def topic(self, partitions: int) -> Iterator[Endpoint]:
        """Create a topic, and yield the address of its leader once it takes batches.

        At the end the topic is gone from the disk.
        """
        client = self.client
        client.admin.create_topic(TOPIC, partitions)
        try:
            for number in range(partitions):
                # Retried until the broker has heard of the topic.
                client.produce(TopicPartition(TOPIC, number), [batch_of_16_kb()], acks=1)
            leader = client.topic(TOPIC).partitions[0].leader
            yield client.metadata([]).nodes[leader]
        finally:
            client.admin.delete_topics([TOPIC])
            while any(self.log_dir.glob(f"{TOPIC}-*")):
                time.sleep(_LOOK_S)


# produce


def _produce(broker: _Broker, path: Path, console: Console) -> Row:
    console.print(f"broker: produce path, {CONNECTIONS} connections, {ROUNDS} rounds")
    times = _PRODUCES // (CONNECTIONS * PIPELINED)
    count = times * CONNECTIONS * PIPELINED
    batch = batch_of_16_kb()
    scratch = path.with_suffix(".scratch")
    with bare("produce", path) as other:
        meters = CpuMeter((broker.pid,)), CpuMeter((other.pid,))

        def ours() -> float:
            with broker.topic(CONNECTIONS) as endpoint, ExitStack() as stack:
                frames = [produce_frame(number, batch) for number in range(CONNECTIONS)]
                answer = accepted(endpoint, frames[0])
                callers = [stack.enter_context(Caller(endpoint)) for _ in frames]
                run = _load(callers, frames, answer, times)
                warm_page_cache(scratch, count * BATCH_BYTES)
                return meters[0].measure(count, run)

        def base() -> float:
            with ExitStack() as stack:
                stack.callback(os.truncate, path, 0)
                frame = produce_frame(0, batch)
                before = frame.index(batch) - 4
                greeting = GREETING.pack(before, len(frame) - 4 - before - len(batch), 64)
                callers = [
                    stack.enter_context(Caller(other.endpoint, greeting))
                    for _ in range(CONNECTIONS)
                ]
                run = _load(callers, [frame] * CONNECTIONS, 64, times)
                warm_page_cache(scratch, count * BATCH_BYTES)
                return meters[1].measure(count, run)

        mine, least = in_turns(ours, base, ROUNDS)
    _say_cpu(console, meters)
    return Row(
        what="produce 16 KB batches, 4 connections, acks=1, against CRC and write",
        unit="requests/s",
        ours=mine,
        base=least,
        asked=0.55,
    )


def _load(
    callers: Sequence[Caller], frames: Sequence[bytes], answer_bytes: int, times: int
) -> Callable[[], float]:
    loads = [[frame * PIPELINED] * times for frame in frames]
    return lambda: pump_all(callers, loads, answer_bytes * PIPELINED)


# fetch


def _fetch(broker: _Broker, path: Path, console: Console) -> Row:
    console.print(f"broker: fetch of {FETCH_BYTES >> 10} KB, {ROUNDS} rounds")
    path.write_bytes(bytes(FETCHED_LOG_BYTES))
    with (
        bare("fetch", path, FETCH_BYTES) as other,
        broker.topic(1) as endpoint,
        Caller(endpoint) as caller,
        Caller(other.endpoint) as bare_caller,
    ):
        meters = CpuMeter((broker.pid,)), CpuMeter((other.pid,))
        frames = [_fetch_frame(offset) for offset in _fill(caller)]
        answer = _fetched(caller, frames[0])
        groups = _grouped(frames, FETCHES_AT_ONCE)

        def ours() -> float:
            run = _walk(caller, groups, answer * FETCHES_AT_ONCE)
            return meters[0].measure(_FETCHES, run)

        def base() -> float:
            run = _walk(bare_caller, [b"next" * FETCHES_AT_ONCE], FETCH_BYTES * FETCHES_AT_ONCE)
            return meters[1].measure(_FETCHES, run)

        mine, least = in_turns(ours, base, ROUNDS)
    _say_cpu(console, meters)
    return Row(
        what="fetch of 1 MB, against sendfile",
        unit="MB/s",
        ours=mine * FETCH_BYTES / 1e6,
        base=least * FETCH_BYTES / 1e6,
        asked=0.65,
    )


def _fill(caller: Caller) -> list[int]:
    """Write the records to fetch, and return the offset where each fetch starts."""
    batch = batch_of_16_kb()
    frame = produce_frame(0, batch)
    starts = []
    for number in range(FETCHED_LOG_BYTES // BATCH_BYTES):
        _, response = decode_response(ProduceResponse, LAST_NAMED, caller.call(frame))
        if number * BATCH_BYTES % FETCH_BYTES == 0:
            starts.append(response.responses[0].partition_responses[0].base_offset)
    return starts


def _fetch_frame(offset: int) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2 * FETCH_BYTES,
        session_epoch=-1,
        topics=(FetchTopic(topic=TOPIC, partitions=(part,)),),
    )
    return framed(encode_request(request, LAST_NAMED, 1, CLIENT))


def _fetched(caller: Caller, frame: bytes) -> int:
    """Fetch once, and return the size of a response with ``FETCH_BYTES`` of records."""
    answer = caller.call(frame)
    _, response = decode_response(FetchResponse, LAST_NAMED, answer)
    sizes = [
        len(records_view(part.records)) for topic in response.responses for part in topic.partitions
    ]
    assert sizes == [FETCH_BYTES], sizes
    return len(answer) + 4


def _grouped(frames: Sequence[bytes], size: int) -> list[bytes]:
    return [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]


def _walk(caller: Caller, groups: Sequence[bytes], answer_bytes: int) -> Callable[[], float]:
    """Send one group of requests after the other, the next during the responses to the last."""
    wanted = [groups[at % len(groups)] for at in range(_FETCHES // FETCHES_AT_ONCE)]

    def run() -> float:
        began = time.perf_counter()
        caller.pump(wanted, answer_bytes)
        return time.perf_counter() - began

    return run


# both


def _say_cpu(console: Console, meters: tuple[CpuMeter, CpuMeter]) -> None:
    ours, base = (meter.median_us for meter in meters)
    console.print(
        f"  server CPU a request: {ours:.1f} us, bare {base:.1f} us, ratio {base / ours:.2f}"
    )
