"""Compaction of transactions that Kafka wrote: by Kafka's cleaner, and by ours on a copy.

Kafka writes the transactions of two topics while these are not compacted.  A broker of ours gets a
copy of their directories.  Then both compact; a plain batch begins each further pass.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sparklog.types import ResourceType
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.both import Both, Side, check
from tests.peers.cleaned_logs import (
    altering,
    await_clean,
    await_past,
    batches_of,
    by_base_offset,
    records_of,
    segments_of,
)
from tests.peers.comparison import differences
from tests.peers.deviations import KEPT_BASE_TIMESTAMP, LAST_MARKER
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.moving import await_markers, move
from tests.unit.executors.broker.broker_rig import Client, Rig, run

TOPIC, OPEN = "compacted-transactions", "compacted-open-transaction"
SECONDS_MAX = 60.0
SEGMENT_MS = 60_000
PASSES = 3
CONFIG = {
    "segment_bytes": "1048576",
    "segment_ms": str(SEGMENT_MS),
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "0",
    "retention_ms": "-1",
}
#: Where the segment with the open transaction begins: what follows is not cleaned.
OPEN_SEGMENT = 3
#: Ours has been started twice.
LEADER_EPOCH = (r"\[\d+\]\.leader_epoch",)
#: It shows where the records of one batch have several times, which is chance here.
BY_CHANCE = (*LEADER_EPOCH, KEPT_BASE_TIMESTAMP.path)
CLEAN_MARKER = ".kafka_cleanshutdown"

Pairs = list[tuple[bytes, bytes | None]]


class Writer:
    """A transactional producer of one topic."""

    def __init__(self, kafka: KafkaBroker, topic: str, name: str) -> None:
        self._topic = topic
        self._producer = Producer({
            "bootstrap.servers": kafka.address,
            "transactional.id": name,
            "linger.ms": 0,
            "log_level": 0,
        })  # fmt: skip
        self._producer.init_transactions(SECONDS_MAX)
        self.is_open = False

    def write(self, pairs: Pairs) -> None:
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        for key, value in pairs:
            self._producer.produce(self._topic, value, key, partition=0)
        assert self._producer.flush(SECONDS_MAX) == 0

    def end(self, *, commit: bool) -> None:
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        end(SECONDS_MAX)
        self.is_open = False


@dataclass
class Plain:
    """Batches outside of transactions; their timestamps are those of the transactions, or begin a
    segment."""

    rolled_ms: int

    def batch(self, pairs: Pairs, *, rolls: bool = False) -> bytes:
        when = int(time.time() * 1000)
        if rolls:
            self.rolled_ms += 2 * SEGMENT_MS
            when = self.rolled_ms
        return encode_batch([Record(key=key, value=v, timestamp=when) for key, v in pairs])


def some(chance: random.Random, value: int) -> Pairs:
    values = [None, b"%d" % value, b"x" * 50]
    keys = (b"key %d" % chance.randrange(40) for _ in range(chance.randint(1, 4)))
    return [(key, chance.choice(values)) for key in keys]


def write_transactions(kafka: KafkaBroker, side: Side, plain: Plain) -> None:
    """Committed and aborted ones between plain batches, in several segments.

    One is aborted by the next producer of its name, so that the last of its producer is a marker.
    """
    side.create(TOPIC, **CONFIG)
    chance = random.Random(3)
    side.fill(TOPIC, plain.batch([(b"first", b"")]))  # where a leader epoch begins, we keep a batch
    Writer(kafka, TOPIC, "compacted-fenced").write([(b"fenced", b"1")])
    Writer(kafka, TOPIC, "compacted-fenced")
    ended = 1
    writers = [Writer(kafka, TOPIC, f"compacted-{number}") for number in range(3)]
    for step in range(60):
        writer = chance.choice([*writers, None])
        if writer is None:
            side.fill(TOPIC, plain.batch(some(chance, step)))
            continue
        writer.write(some(chance, step))
        if chance.random() < 0.6:
            writer.end(commit=chance.random() < 0.5)
            ended += 1
        if step % 15 == 14:
            side.fill(TOPIC, plain.batch([(b"rolled", b"")], rolls=True))
    for writer in writers:
        if writer.is_open:
            writer.end(commit=True)
            ended += 1
    await_markers(kafka.log_dir / f"{TOPIC}-0", ended)
    side.fill(TOPIC, plain.batch([(b"rolled", b"")], rolls=True))


def write_open_transaction(kafka: KafkaBroker, side: Side, plain: Plain) -> Writer:
    """In a sealed segment, behind a committed value of the same key."""
    side.create(OPEN, **CONFIG)
    side.fill(OPEN, plain.batch([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]))
    side.fill(OPEN, plain.batch([(b"a", b"3"), (b"c", b"1")], rolls=True))
    side.fill(OPEN, plain.batch([(b"a", b"4")]))
    writer = Writer(kafka, OPEN, "compacted-open")
    writer.write([(b"b", b"undecided")])
    side.fill(OPEN, plain.batch([(b"c", b"2")]))
    side.fill(OPEN, plain.batch([(b"a", b"active")], rolls=True))
    return writer


async def start_ours(rig: Rig, folder: Path, kafka: KafkaBroker) -> tuple[Client, Path]:
    """A broker of ours with copies of both directories, which it recovers; its log directory."""
    await rig.start_broker(data_dir=str(folder))
    client = await rig.client()
    for topic in (TOPIC, OPEN):
        await client.create_topic(topic, **CONFIG)
    await rig.leads(2)
    await rig.stop_broker()
    log_dir = folder / "broker-1"
    for topic in (TOPIC, OPEN):
        move(kafka.log_dir / f"{topic}-0", log_dir / f"{topic}-0")
    (log_dir / CLEAN_MARKER).unlink()
    await rig.start_broker(data_dir=str(folder), new=False)
    await rig.leads(2)
    return await rig.client(), log_dir


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a partition on one side."""

    logs: Mapping[int, bytes]
    aborted: Mapping[str, bytes]

    @classmethod
    def of(cls, partition_dir: Path) -> "Files":
        found = sorted(partition_dir.glob("*.txnindex"))
        return cls(
            logs=segments_of(partition_dir),
            aborted={path.name: path.read_bytes() for path in found if path.stat().st_size},
        )

    def batches(self) -> Mapping[str, Mapping[str, Any]]:
        return by_base_offset(batches_of(b"".join(self.logs.values())))


Pair = tuple[Files, Files]


@pytest.fixture(scope="module")
def cleaned(
    both: Both, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Pair], Pair]]:
    """The files of both sides after every pass over the one topic, and after one over the other."""
    side, plain = both.kafka, Plain(int(time.time() * 1000))
    write_transactions(kafka, side, plain)
    writer = write_open_transaction(kafka, side, plain)
    alter(side, ResourceType.BROKER, "1", log_cleaner_backoff_ms="50")
    folder = tmp_path_factory.mktemp("compacted")

    async def story(rig: Rig) -> tuple[list[Pair], Pair]:
        client, log_dir = await start_ours(rig, folder, kafka)
        for topic in (TOPIC, OPEN):
            alter(side, ResourceType.TOPIC, topic, cleanup_policy="compact")
            await client.alter(ResourceType.TOPIC, topic, cleanup_policy="compact")
        dirs = kafka.log_dir, log_dir
        passes = [await files_when_clean(dirs, TOPIC)]
        while len(passes) < PASSES:
            await_past(int(time.time() * 1000))
            records = plain.batch([(b"rolled", b""), (b"%d" % len(passes), b"")], rolls=True)
            side.fill(TOPIC, records)
            assert (await client.produce(TOPIC, records)).error_code == 0
            passes.append(await files_when_clean(dirs, TOPIC))
        return passes, await files_when_clean(dirs, OPEN, OPEN_SEGMENT)

    yield run(story, log_cleaner_backoff_ms="50")
    alter(side, ResourceType.BROKER, "1", log_cleaner_backoff_ms=None)
    writer.end(commit=False)


def alter(side: Side, kind: ResourceType, name: str, **values: str | None) -> None:
    (answered,) = side.exchange(altering(kind, name, **values), 1).responses
    assert answered.error_code == 0, answered


async def files_when_clean(dirs: tuple[Path, Path], topic: str, offset: int | None = None) -> Pair:
    kafka, ours = (log_dir / f"{topic}-0" for log_dir in dirs)
    for partition_dir in (kafka, ours):
        await asyncio.to_thread(await_clean, partition_dir, offset)
    return Files.of(kafka), Files.of(ours)


def test_the_same_batches_are_left(cleaned: tuple[list[Pair], Pair]) -> None:
    passes, _ = cleaned
    for number, (kafka, ours) in enumerate(passes, 1):
        assert list(kafka.logs) == list(ours.logs)
        meant = [LAST_MARKER] if number == PASSES else []
        check(differences(kafka.batches(), ours.batches()), meant, where=BY_CHANCE)


def test_the_same_aborted_transactions_are_left(cleaned: tuple[list[Pair], Pair]) -> None:
    passes, _ = cleaned
    for kafka, ours in passes:
        assert ours.aborted == kafka.aborted
    sizes = [len(b"".join(kafka.aborted.values())) for kafka, _ in passes]
    assert sizes[0] > 10 * sizes[-1] > 0


def test_an_open_transaction_replaces_nothing(cleaned: tuple[list[Pair], Pair]) -> None:
    _, (kafka, ours) = cleaned
    assert ours.batches() == kafka.batches()
    kept = records_of(batches_of(b"".join(ours.logs.values())))
    assert [(record.key, record.value) for record in kept] == [
        *[(b"b", b"1"), (b"a", b"2")],
        *[(b"a", b"3"), (b"c", b"1"), (b"a", b"4"), (b"b", b"undecided"), (b"c", b"2")],
        (b"a", b"active"),
    ]
