"""The cost of replication: throughput with three replicas against one, and three idle brokers.

Owns: the loads.  Must not know how a row is shown.  Three brokers share the machine.  Both sides of
a ratio are the same brokers, with the same frames, or the same producer except for ``acks``.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Row, in_turns
from benchmarks.librdkafka import produce
from benchmarks.load import Caller, pump_all, warm_page_cache
from benchmarks.produce_frames import (
    BATCH_BYTES,
    CLIENT,
    TOPIC,
    accepted,
    batch_of_16_kb,
    produce_frame,
)
from benchmarks.servers import CpuMeter, cpu_seconds, resident_megabytes, serve
from sparklog.client.blocking import BlockingClient
from sparklog.types import Endpoint, TopicPartition

BROKERS = 3
#: Each broker leads two partitions; each partition has a connection.
PARTITIONS = 6
#: Requests that a connection sends at once.  Twice as many are in flight.
PIPELINED = 16
ROUNDS = 7
IDLE_PARTITIONS = 1_000
ACKS_ALL = -1

#: Loads of a connection when each request is written three times.
_TIMES = 60
_MESSAGES = 100_000
_VALUE_BYTES = 1024
_IDLE_TOPICS = 10
_SETTLE_S = 10.0
_IDLE_S = 20.0
_LOOK_S = 0.01


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        folder = Path(name)
        return [*_throughput(folder / "busy", console), *_idle(folder / "idle", console)]


def _throughput(folder: Path, console: Console) -> Iterator[Row]:
    with (
        serve(folder, BROKERS) as served,
        BlockingClient([served.bootstrap], client_id=CLIENT) as client,
    ):
        pids = served.broker_pids()
        console.print(f"replication: {PARTITIONS} partitions on {BROKERS} brokers, {ROUNDS} rounds")
        meters = CpuMeter(pids), CpuMeter(pids)

        def frames_to(replicas: int, acks: int, meter: CpuMeter) -> float:
            with _topic(client, folder, replicas) as leaders:
                # Every run leaves the same number of bytes on the disks.
                return _rate(leaders, acks, _TIMES * BROKERS // replicas, folder, meter)

        three, one = in_turns(
            lambda: frames_to(BROKERS, ACKS_ALL, meters[0]),
            lambda: frames_to(1, 1, meters[1]),
            ROUNDS,
        )
        yield Row(
            what="produce 16 KB batches from sockets, RF 3 and acks=all, against RF 1 and acks=1",
            unit="requests/s",
            ours=three,
            base=one,
            asked=0.45,
        )
        yield Row(
            what="CPU of the three brokers together for one of these requests",
            unit="us CPU a request",
            ours=meters[0].median_us,
            base=meters[1].median_us,
            asked=None,
        )
        console.print(f"replication: librdkafka, {_MESSAGES:,} messages, {ROUNDS} rounds")

        def messages_to(replicas: int, acks: int) -> float:
            with _topic(client, folder, replicas):
                warm_page_cache(folder / "scratch", _MESSAGES * _VALUE_BYTES * replicas)
                taken = produce(
                    str(served.bootstrap),
                    TOPIC,
                    PARTITIONS,
                    messages=_MESSAGES,
                    value_bytes=_VALUE_BYTES,
                    acks=acks,
                )
                return _MESSAGES / taken

        three, one = in_turns(
            lambda: messages_to(BROKERS, ACKS_ALL), lambda: messages_to(1, 1), ROUNDS
        )
        yield Row(
            what="librdkafka with its defaults, 1 KB values, RF 3 and acks=all, against RF 1 and "
            "acks=1",
            unit="messages/s",
            ours=three,
            base=one,
            asked=0.45,
        )


def _rate(leaders: list[Endpoint], acks: int, times: int, folder: Path, meter: CpuMeter) -> float:
    """Return the requests per second."""
    count = PARTITIONS * PIPELINED * times
    frames = [produce_frame(n, batch_of_16_kb(), acks=acks) for n in range(PARTITIONS)]
    answer = accepted(leaders[0], frames[0])
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(endpoint)) for endpoint in leaders]
        loads = [[frame * PIPELINED] * times for frame in frames]
        warm_page_cache(folder / "scratch", PARTITIONS * PIPELINED * _TIMES * BROKERS * BATCH_BYTES)
        return meter.measure(count, lambda: pump_all(callers, loads, answer * PIPELINED))


@contextmanager
def _topic(client: BlockingClient, folder: Path, replicas: int) -> Iterator[list[Endpoint]]:
    """Create a topic, and yield the leader's address of each partition.

    At the end the topic is gone from the disks.
    """
    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    client.admin.create_topic(TOPIC, PARTITIONS, replication_factor=replicas, configs=configs)
    try:
        for number in range(PARTITIONS):
            client.produce(TopicPartition(TOPIC, number), [batch_of_16_kb()], acks=ACKS_ALL)
        partitions, nodes = client.topic(TOPIC).partitions, client.metadata([]).nodes
        yield [nodes[partitions[number].leader] for number in range(PARTITIONS)]
    finally:
        client.admin.delete_topics([TOPIC])
        while any(folder.glob(f"broker-*/{TOPIC}-*")):
            time.sleep(_LOOK_S)


def _idle(folder: Path, console: Console) -> Iterator[Row]:
    console.print(f"replication: {IDLE_PARTITIONS} partitions, RF 3, idle for {_IDLE_S:.0f} s")
    with serve(folder, BROKERS) as served:
        with BlockingClient([served.bootstrap], client_id=CLIENT, timeout_s=300) as client:
            share = IDLE_PARTITIONS // _IDLE_TOPICS
            for topic in range(_IDLE_TOPICS):
                name = f"{TOPIC}-{topic}"
                client.admin.create_topic(name, share, replication_factor=BROKERS)
                for number in range(share):
                    batch = [batch_of_16_kb()]
                    client.produce(TopicPartition(name, number), batch, acks=ACKS_ALL)
        time.sleep(_SETTLE_S)
        pids = served.broker_pids()
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(_IDLE_S)
        used = [cpu_seconds(pid) - start for pid, start in zip(pids, before, strict=True)]
        megabytes = max(map(resident_megabytes, pids))
    what = f"the busiest of 3 idle brokers with {IDLE_PARTITIONS:,} partitions, RF 3"
    yield Row(
        what=what,
        unit="% of a core",
        ours=max(used) / _IDLE_S * 100,
        base=None,
        asked=5,
        at_most=True,
    )
    yield Row(
        what="resident memory of the largest of them",
        unit="MB",
        ours=megabytes,
        base=None,
        asked=None,
    )
