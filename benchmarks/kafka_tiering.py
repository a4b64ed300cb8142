"""Tiered topics beside those of Kafka with ``LocalTieredStorage``, in turns.

Owns: the workloads, their figures, and the proof that the history was remote.  Must not know how a
server is started, or how a client works.

Kafka's plugin keeps remote segments in a folder, so the fair pair has ours in a folder too.  The
other pair has ours in a bucket: versitygw on the same cores, whose CPU and memory count as ours.
Both sides get the same records in segments of the same size, look for segments to copy and to
delete equally often, and keep equally few of them in files.  The history is larger than our cache
of remote reads, if the scale is not reduced, so every read of it comes from the remote segments.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from rich.console import Console

from benchmarks.kafka_clients import consumed, cpu_by_gigabyte, server_cpu
from benchmarks.kafka_nodes import Pair, Side, pair
from benchmarks.librdkafka import checked_bytes, latencies, new_topic, produce
from benchmarks.measurement import Figure, Measured, take_turns
from benchmarks.scale import Scale
from benchmarks.tiering import CACHE_BYTES, SEGMENT_BYTES, SOON, TIERED, await_copies, bucket
from sparklog.client.blocking import BlockingClient
from sparklog.types import OffsetSpec, TopicPartition

VALUE_BYTES: Final = 1000
#: Of latencies: 20 MB/s, so a segment is sealed and copied every 0.8 s.
RATE, LATENCY_VALUE_BYTES = 2_000, 10_000
#: Bytes of a tiered log in files; the active segment comes on top.
LOCAL_BYTES: Final = SEGMENT_BYTES
CONFIGS: Final = {**TIERED, "local.retention.bytes": str(LOCAL_BYTES)}
#: The smallest share of the history that must be in the remote segments alone.
REMOTE_SHARE_MIN: Final = 0.75
_ACKS_ALL = -1
#: The client of ``new_topic`` has produced one record of one byte.
_FIRST_MESSAGES = _FIRST_BYTES = 1


def in_a_folder(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each.  Remote segments of both are files of a folder."""
    part = "tiering-folder"
    with _folder() as folder, _pair(folder, str(folder / "ours")) as both:
        return _measure(part, both, console, scale)


def in_a_bucket(console: Console, scale: Scale) -> list[Measured]:
    """Measure one broker of each.  Our remote segments are objects of a bucket."""
    part = "tiering-bucket"
    with (
        _folder() as folder,
        bucket(folder) as server,
        _pair(folder, "s3://bucket/log") as both,
    ):
        ours = replace(both.ours, pids=(*both.ours.pids, server.pid))
        return _measure(part, replace(both, ours=ours), console, scale)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for remote segments; a folder of the brokers must not have them in it."""
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name:
        yield Path(name)


@contextmanager
def _pair(folder: Path, remote_dir: str) -> Iterator[Pair]:
    from tests.peers.tiered_kafka import local_tiered_storage
    from tests.support.kafka_jars import KAFKA_TIERED, jars_of

    with pair(
        1,
        SOON,
        ours={"remote.dir": remote_dir, "remote.cache.bytes": str(CACHE_BYTES)},
        kafkas=local_tiered_storage(folder / "kafka"),
        plugins=(jars_of(KAFKA_TIERED),),
    ) as both:
        yield both


def _measure(part: str, both: Pair, console: Console, scale: Scale) -> list[Measured]:
    with ExitStack() as stack:
        ours, kafka = (
            stack.enter_context(_history(side, both.folder / name))
            for side, name in ((both.ours, "ours"), (both.kafka, "kafka"))
        )
        console.print(f"{part}: produce while segments are copied")
        found = take_turns(
            _produce_figures(part),
            lambda: ours.produce(scale.tiered_messages),
            lambda: kafka.produce(scale.tiered_messages),
            scale.rounds,
        )
        console.print(f"{part}: latency while segments are copied")
        found += take_turns(
            _latency_figures(part),
            lambda: ours.latency(scale.latency_seconds),
            lambda: kafka.latency(scale.latency_seconds),
            scale.rounds,
        )
        console.print(f"{part}: check every record of the history, then read it")
        for history in (ours, kafka):
            history.check()
        found += take_turns(
            _read_figures(part, ours), ours.read, kafka.read, scale.rounds, warm=False
        )
        found += take_turns(_memory_figures(part), ours.memory, kafka.memory, 1, warm=False)
        return found


class _Tiers(NamedTuple):
    """Offsets of a log: where it begins, where its files begin, its end, and that of the copies."""

    start: int
    local_start: int
    end: int
    copied_end: int


@dataclass(slots=True, kw_only=True)
class _History:
    """A tiered topic with one partition of one side.  ``data`` has the files of the broker."""

    side: Side
    topic: str
    data: Path
    client: BlockingClient
    messages: int = _FIRST_MESSAGES

    @property
    def value_bytes(self) -> int:
        return _FIRST_BYTES + (self.messages - _FIRST_MESSAGES) * VALUE_BYTES

    def produce(self, messages: int) -> tuple[float, ...]:
        """See ``_produce_figures``.  No copies are left to be made at the end."""
        side, moved = self.side.with_children(), messages * VALUE_BYTES
        before, copied = side.cpu_seconds(), self._tiers(self.topic).copied_end
        began = time.perf_counter()
        taken = produce(
            side.bootstrap,
            self.topic,
            1,
            messages=messages,
            value_bytes=VALUE_BYTES,
            acks=_ACKS_ALL,
        )
        meanwhile = self._tiers(self.topic).copied_end - copied
        await_copies(self.data, self.topic, local_bytes=LOCAL_BYTES)
        until_remote = time.perf_counter() - began
        self.messages += messages
        return (
            moved / 1e6 / taken,
            cpu_by_gigabyte(side, before, moved),
            100 * meanwhile / messages,
            moved / 1e6 / until_remote,
        )

    def latency(self, seconds: float) -> tuple[float, ...]:
        """See ``_latency_figures``.  The records go through another topic."""
        with new_topic(self.side.bootstrap, 1, 1, CONFIGS) as topic:
            found = latencies(
                self.side.bootstrap,
                topic,
                1,
                rate=RATE,
                seconds=seconds,
                value_bytes=LATENCY_VALUE_BYTES,
            )
            copied = self._tiers(topic).copied_end
            await_copies(self.data, topic, local_bytes=LOCAL_BYTES)
        cuts = quantiles(found, n=100)
        return cuts[49], cuts[98], 100 * copied / (len(found) + _FIRST_MESSAGES)

    def check(self) -> None:
        """Read every record, and check that nearly all of them are in remote segments alone."""
        found = checked_bytes(self.side.bootstrap, self.topic, messages=self.messages)
        assert found == self.value_bytes, f"{self.side.name}: {found} of {self.value_bytes} bytes"
        self.remote_share()

    def read(self) -> tuple[float, ...]:
        """See ``_read_figures``."""
        side = self.side.with_children()
        return *consumed(side, self.topic, 1, self.messages, VALUE_BYTES), 100 * self.remote_share()

    def remote_share(self) -> float:
        """The share of the records that no file of the broker has; at least the smallest one."""
        tiers = self._tiers(self.topic)
        assert (tiers.start, tiers.end) == (0, self.messages), f"{self.side.name}: {tiers}"
        assert tiers.local_start <= tiers.copied_end, f"{self.side.name}: {tiers}"
        share = tiers.local_start / tiers.end
        assert share >= REMOTE_SHARE_MIN, f"{self.side.name}: {tiers}; more messages are needed"
        return share

    def memory(self) -> tuple[float, float]:
        return self.side.with_children().resident_megabytes()

    def _tiers(self, topic: str) -> _Tiers:
        tp = TopicPartition(topic, 0)
        start, local_start, end, last_copied = (
            self.client.list_offsets({tp: spec})[tp].offset
            for spec in (
                OffsetSpec.EARLIEST,
                OffsetSpec.EARLIEST_LOCAL,
                OffsetSpec.LATEST,
                OffsetSpec.LATEST_TIERED,
            )
        )
        # The last copied offset is -1 before the first copy.
        return _Tiers(start, local_start, end, last_copied + 1)


@contextmanager
def _history(side: Side, data: Path) -> Iterator[_History]:
    with (
        new_topic(side.bootstrap, 1, 1, CONFIGS) as topic,
        BlockingClient(side.bootstrap, client_id="bench") as client,
    ):
        yield _History(side=side, topic=topic, data=data, client=client)


def _produce_figures(part: str) -> Sequence[Figure]:
    return (
        Figure(
            key=f"{part}/produce",
            what=f"librdkafka produces values of {VALUE_BYTES} bytes to a tiered topic, acks=all",
            unit="MB/s",
        ),
        server_cpu(f"{part}/produce/cpu", "CPU of all servers for it and for the copies"),
        Figure(
            key=f"{part}/produce/copied",
            what="copied by the time of the last acknowledgement",
            unit="%",
            digits=0,
        ),
        Figure(
            key=f"{part}/produce/remote",
            what="produced, copied, and deleted from the files but for the last segments",
            unit="MB/s",
        ),
    )


def _latency_figures(part: str) -> Sequence[Figure]:
    load = f"{RATE:,} records/s of {LATENCY_VALUE_BYTES:,} bytes to a tiered topic, acks=all"
    return (
        *(
            Figure(
                key=f"{part}/latency/{name}",
                what=f"end-to-end latency, {load}, {name}",
                unit="ms",
                less_is_better=True,
                digits=2,
            )
            for name in ("p50", "p99")
        ),
        Figure(
            key=f"{part}/latency/copied",
            what="copied by the time of the last record",
            unit="%",
            digits=0,
        ),
    )


def _read_figures(part: str, history: _History) -> Sequence[Figure]:
    size = f"{history.value_bytes / 1e9:.1f} GB"
    return (
        Figure(
            key=f"{part}/read",
            what=f"librdkafka consumes {size} of history from its start to its end",
            unit="MB/s",
        ),
        server_cpu(f"{part}/read/cpu"),
        Figure(
            key=f"{part}/read/remote",
            what="of the history in remote segments alone",
            unit="%",
        ),
    )


def _memory_figures(part: str) -> Sequence[Figure]:
    return tuple(
        Figure(
            key=f"{part}/{key}",
            what=f"resident memory afterwards: {what}",
            unit="MB",
            less_is_better=True,
            digits=0,
        )
        for key, what in (
            ("memory", "the broker processes (Kafka's are controllers too)"),
            ("memory/all", "all processes of the servers"),
        )
    )
