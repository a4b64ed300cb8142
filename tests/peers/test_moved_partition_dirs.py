"""A partition directory moves from us to Kafka and back: each serves what the other wrote."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.types import Compression
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.both import PRODUCE_VERSION, Both, Side, batch, list_offsets, produce
from tests.peers.cleaned_logs import await_clean, batches_of, records_of
from tests.peers.deviations import CONTROLLER_ID, NODE_ZERO
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.moving import log_of, move
from tests.peers.serving import RETENTION, broker_address
from tests.support.served import ServedCluster

TOPIC = "moved"
COMPACTED = "moved-compacted"
SEGMENT_MS = 60_000
NOT_BY_ASKING = ("auto.create.topics.enable", "false")
BATCHES = 400
#: Lately: Kafka forgets a producer by the timestamps of its records.
FIRST = int(time.time() * 1000) - 600_000
PRODUCER = 77_000


def written(number: int) -> bytes:
    return batch(
        random.Random(number).randbytes(4000),
        b"y",
        timestamp=FIRST + 10 * number,
        compression=Compression(number % 5),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=2 * number,
    )


class Stage:
    """A cluster of ours and a Kafka, of which one has the directory."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self._folder = folder
        self._served: ServedCluster | None = None
        self.kafka = KafkaBroker(jars, folder / "kafka", dict([RETENTION, NOT_BY_ASKING]))

    def of_kafka(self) -> Side:
        return Side("kafka", {"broker": self.kafka.address})

    def serve(self) -> Side:
        """Ours, started."""
        settings = (RETENTION, NOT_BY_ASKING, ("log.cleaner.backoff.ms", "100"))
        options = [option for pair in settings for option in ("--set", "=".join(pair))]
        self._served = ServedCluster(self._folder / "ours", *options, brokers=1)
        assert self._served.bootstrap, self._served.errors
        return Side("ours", {"broker": broker_address(self._served)})

    def stop_ours(self) -> None:
        assert self._served is not None
        assert self._served.stop() == 0

    @property
    def our_files(self) -> Path:
        return self.our_dir(TOPIC)

    @property
    def kafka_files(self) -> Path:
        return self.kafka_dir(TOPIC)

    def our_dir(self, topic: str) -> Path:
        return self._folder / "ours" / "broker-1" / f"{topic}-0"

    def kafka_dir(self, topic: str) -> Path:
        return self.kafka.log_dir / f"{topic}-0"

    def close(self) -> None:
        self.kafka.kill()
        if self._served is not None:
            self._served.kill()


@pytest.fixture
def stage(jars: Path, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(jars, tmp_path)
    try:
        yield stage
    finally:
        stage.close()


def check_it_is_served(side: Side, partition_dir: Path, batches: int) -> None:
    """From the start, from the middle, by time; and its producer goes on where it was."""
    everything = log_of(partition_dir)
    assert side.records(TOPIC) == everything
    assert everything.endswith(side.records(TOPIC, batches + 1))
    for number in (0, 1, batches // 3, batches - 1):
        response = side.exchange(list_offsets(TOPIC, FIRST + 10 * number), 7)
        assert response.topics[0].partitions[0].offset == 2 * number
    again, following = (
        side.exchange(produce(TOPIC, written(number)), PRODUCE_VERSION)
        .responses[0]
        .partition_responses[0]
        for number in (batches - 1, batches)
    )
    assert (again.error_code, again.base_offset) == (0, 2 * (batches - 1))
    assert (following.error_code, following.base_offset) == (0, 2 * batches)
    side.close()


def keyed(number: int) -> bytes:
    """Batch ``number`` of a compacted log: keys of every batch, of few, and of this one."""
    keys = (b"every", b"%d" % (number % 7), b"once %d" % number if number % 10 == 3 else b"few")
    records = [Record(key=key, value=b"x" * 100, timestamp=FIRST + 10 * number) for key in keys]
    return encode_batch(records, compression=Compression(number % 5))


def fill_and_clean(stage: Stage, ours: Side, kafka: Side) -> None:
    """A topic on both sides, which only ours compacts."""
    for side, policy in ((ours, "compact"), (kafka, "delete")):
        side.create(
            COMPACTED,
            cleanup_policy=policy,
            segment_ms=str(SEGMENT_MS),
            min_cleanable_dirty_ratio="0",
            flush_messages="1",
        )
    ours.fill(COMPACTED, *map(keyed, range(60)))
    ours.fill(COMPACTED, keyed(60 + 2 * SEGMENT_MS // 10))  # begins a segment
    await_clean(stage.our_dir(COMPACTED))


def check_gaps_are_served(side: Side, partition_dir: Path) -> None:
    """Every record from the start, from each gap on, and by its time."""
    kept = records_of(batches_of(log_of(partition_dir)))
    assert len(kept) < 100 < kept[-1].offset
    assert records_of(batches_of(side.records(COMPACTED))) == kept
    for record in kept:
        following = records_of(batches_of(side.records(COMPACTED, record.offset - 1)))
        assert record in following
        answer = side.exchange(list_offsets(COMPACTED, record.timestamp), 7)
        assert answer.topics[0].partitions[0].timestamp == record.timestamp


def test_there_and_back(stage: Stage) -> None:
    ours, kafka = stage.serve(), stage.of_kafka()
    asked = MetadataRequest(topics=(MetadataRequestTopic(name="never-made"),))
    for version in (1, 4, 9, 12):  # topics are not made by asking for them here
        Both(kafka, ours).same(asked, version, NODE_ZERO, CONTROLLER_ID)
    for side in (ours, kafka):
        side.create(TOPIC, segment_bytes="1048576")
    ours.fill(TOPIC, *map(written, range(BATCHES)))
    fill_and_clean(stage, ours, kafka)
    ours.close()
    kafka.close()
    stage.stop_ours()
    stage.kafka.stop()
    assert len(list(stage.our_files.glob("*.log"))) > 1

    move(stage.our_dir(COMPACTED), stage.kafka_dir(COMPACTED))
    move(stage.our_files, stage.kafka_files)  # a clean stop: Kafka takes our indexes as they are
    stage.kafka.start()
    kafka = stage.of_kafka()
    for topic in (TOPIC, COMPACTED):
        kafka.await_topic(topic)
    check_gaps_are_served(kafka, stage.our_dir(COMPACTED))
    check_it_is_served(kafka, stage.our_files, BATCHES)

    stage.kafka.kill()  # an unclean one: Kafka reads our batches and makes indexes of its own
    for partition_dir in (stage.kafka_files, stage.kafka_dir(COMPACTED)):
        for path in (*partition_dir.glob("*.index"), *partition_dir.glob("*.timeindex")):
            path.unlink()
    stage.kafka.start()
    kafka = stage.of_kafka()
    for topic in (TOPIC, COMPACTED):
        kafka.await_topic(topic)
    check_gaps_are_served(kafka, stage.our_dir(COMPACTED))
    check_it_is_served(kafka, stage.kafka_files, BATCHES + 1)
    stage.kafka.stop()

    move(stage.kafka_dir(COMPACTED), stage.our_dir(COMPACTED))
    move(stage.kafka_files, stage.our_files)
    ours = stage.serve()
    for topic in (TOPIC, COMPACTED):
        ours.await_topic(topic)
    check_gaps_are_served(ours, stage.kafka_dir(COMPACTED))
    check_it_is_served(ours, stage.kafka_files, BATCHES + 2)
    stage.stop_ours()
    assert stage.our_files.exists()
