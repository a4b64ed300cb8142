"""The clients of a compacted topic: librdkafka writes keys again and again, and reads all of them.

Owns: the load and what was read, as values of ``keyed_story``.  Must not know who cleans a log or
dies meanwhile.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from sparklog.executors.log.names import CLEAN_OFFSET, LOG_SUFFIX
from sparklog.executors.log.offset_file import decode_offset
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.chaos.chaos_clients import DELIVERY_MS_MAX, LOOK_SECONDS, PASSING, Load
from tests.chaos.journal_watch import JournalWatch
from tests.chaos.keyed_story import KeyedRecord, KeyedReplica, KeyedWrite, Passage

KEYED = "keyed"
KEYED_PARTITIONS = 2
#: Longer than a broker is away: a follower that misses a tombstone keeps the value before it.
DELETE_RETENTION_MS = 30_000
CONFIGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.3",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
KEYS = 100
TOMBSTONE_SHARE = 0.1
PASSAGE_EVERY_S = 2.0
#: A reader that needs longer for some records has a finding.
PASSAGE_S_MAX = 120.0


@dataclass(slots=True, kw_only=True)
class KeyedLoad:
    """What the clients of the compacted topic share."""

    load: Load
    journal: JournalWatch
    writes: list[KeyedWrite] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)

    @property
    def now_ms(self) -> int:
        return self.load.history.now_ms


def write_keys(keyed: KeyedLoad, chance: random.Random) -> None:
    """One idempotent producer, so that the order of writes is the order of offsets."""
    settings = {
        "enable.idempotence": True,
        "message.timeout.ms": DELIVERY_MS_MAX,
        "linger.ms": 5,
        "batch.size": 20_000,  # a batch has to fit into a segment
    }
    producer = Producer({**keyed.load.client_settings("keyed-producer"), **settings})
    number = 0
    while not keyed.load.over.is_set():
        for _ in range(chance.choice((5, 20, 60))):
            number += 1
            key = chance.randrange(KEYS)
            is_deleted = chance.random() < TOMBSTONE_SHARE
            padding = b"." * chance.choice((0, 50, 400))
            write = KeyedWrite(
                key % KEYED_PARTITIONS,
                b"key-%d" % key,
                None if is_deleted else b"%d" % number + padding,
                keyed.now_ms,
            )
            keyed.writes.append(write)
            producer.produce(
                KEYED,
                write.value,
                write.key,
                partition=write.partition,
                on_delivery=partial(_delivered, keyed, write),
            )
        end = time.monotonic() + chance.random() * 0.3
        while (left := end - time.monotonic()) > 0:
            producer.poll(left)
    if producer.flush(DELIVERY_MS_MAX / 1000 + 10):
        keyed.load.complaints.append("keyed-producer: some records never had an outcome")


def _delivered(
    keyed: KeyedLoad, write: KeyedWrite, error: KafkaError | None, message: Message
) -> None:
    if error is not None:
        keyed.load.complaints.append(f"keyed-producer: a record was not delivered: {error}")
        return
    offset = message.offset()
    write.acked_ms, write.offset = keyed.now_ms, NO_OFFSET if offset is None else offset
    keyed.load.counters["keyed_records_acked"] += 1


def read_keys(keyed: KeyedLoad) -> None:
    """Passage after passage, until the run is over."""
    while not keyed.load.over.wait(PASSAGE_EVERY_S):
        for partition in range(KEYED_PARTITIONS):
            read_passage(keyed, partition)


def read_passage(keyed: KeyedLoad, partition: int) -> None:
    """One partition from its beginning to its end."""
    name, tp = "keyed-reader", TopicPartition(KEYED, partition)
    settings = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer(
        {**keyed.load.client_settings(name), **settings, "enable.partition.eof": True}
    )
    consumer.assign([Place(KEYED, partition, 0)])
    began_ms, epoch = keyed.now_ms, _leader_epoch(keyed, tp)
    records: list[KeyedRecord] = []
    end = time.monotonic() + PASSAGE_S_MAX
    try:
        while time.monotonic() < end:
            message = consumer.poll(LOOK_SECONDS)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                break
            if error is not None:
                if error.code() not in PASSING:
                    keyed.load.complaints.append(f"{name}: {tp}: {error}")
            elif message is not None:
                offset, key = message.offset(), message.key()
                assert offset is not None
                assert isinstance(key, bytes)
                records.append(KeyedRecord(offset, key, message.value()))
        else:
            keyed.load.complaints.append(f"{name}: {tp} was not read in {PASSAGE_S_MAX} s")
            return
    finally:
        consumer.close()
    ended_ms = keyed.now_ms
    is_quick = ended_ms - began_ms < DELETE_RETENTION_MS
    passage = Passage(
        reader=name,
        partition=partition,
        began_ms=began_ms,
        ended_ms=ended_ms,
        records=tuple(records),
        is_steady=is_quick and epoch == _leader_epoch(keyed, tp),
    )
    keyed.passages.append(passage)
    keyed.load.counters["steady_passages"] += passage.is_steady


def _leader_epoch(keyed: KeyedLoad, tp: TopicPartition) -> int:
    state = keyed.journal.catch_up().partition(tp)
    assert state is not None
    return state.leader_epoch


# files


def replicas_on(data_dir: Path) -> Iterator[KeyedReplica]:
    """What each broker's files hold of the topic, once all have stopped."""
    for partition_dir in sorted(data_dir.glob(f"broker-*/{KEYED}-*")):
        number = partition_dir.name.removeprefix(f"{KEYED}-")
        if not number.isdigit():
            continue  # set aside, or about to be deleted
        clean = partition_dir / CLEAN_OFFSET
        yield KeyedReplica(
            broker=int(partition_dir.parent.name.removeprefix("broker-")),
            partition=int(number),
            clean_offset=(decode_offset(clean.read_bytes()) or 0) if clean.exists() else 0,
            records=tuple(_records_in(partition_dir)),
        )


def _records_in(partition_dir: Path) -> Iterator[KeyedRecord]:
    for path in sorted(partition_dir.glob(f"*{LOG_SUFFIX}")):
        data = path.read_bytes()
        for header, position in iter_batches(data):
            for record in iter_records(data, position, header):
                assert record.key is not None
                yield KeyedRecord(record.offset, record.key, record.value)
