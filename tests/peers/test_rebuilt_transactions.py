"""What recovery makes of transactions that Kafka wrote is what Kafka made of them itself."""

import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.config import TopicConfig
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.log.producer_snapshot import decode_snapshot
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.metadata import PartitionImage
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import TopicPartition
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.moving import await_markers

TOPIC = "rebuilt-transactions"
TP = TopicPartition(TOPIC, 0)
SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "100", "retention.ms": "-1"}
TIMEOUT_S = 60
#: The one that stays open must outlast the tests.
TRANSACTION_TIMEOUT_MS = 900_000
MADE_BY_US = (".txnindex", ".snapshot", ".metadata")


@pytest.fixture(scope="module")
def written(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of Kafka's directory of a partition: transactions between plain writes, one open."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)]).values():
        created.result(TIMEOUT_S)
    chance = random.Random(4)
    transactional = [_producer(kafka, f"rebuilt-{number}") for number in range(3)]
    plain = Producer({"bootstrap.servers": kafka.address})
    is_open = [False] * len(transactional)
    ended = 0
    for _ in range(100):
        number = chance.randrange(4)
        if number == 3:
            plain.produce(TOPIC, chance.randbytes(chance.randrange(40_000)), partition=0)
            assert plain.flush(TIMEOUT_S) == 0
            continue
        producer = transactional[number]
        if not is_open[number]:
            producer.begin_transaction()
            is_open[number] = True
        producer.produce(TOPIC, chance.randbytes(chance.randrange(80_000)), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        if chance.random() < 0.5:
            aborts = chance.random() < 0.6
            (producer.abort_transaction if aborts else producer.commit_transaction)(TIMEOUT_S)
            is_open[number] = False
            ended += 1
    await_markers(kafka.log_dir / str(TP), ended)
    if not is_open[0]:
        transactional[0].begin_transaction()
    transactional[0].produce(TOPIC, b"open", partition=0)
    assert transactional[0].flush(TIMEOUT_S) == 0
    copy = tmp_path_factory.mktemp("written") / str(TP)
    shutil.copytree(kafka.log_dir / str(TP), copy)
    yield copy
    transactional[0].abort_transaction(TIMEOUT_S)


def _producer(kafka: KafkaBroker, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def open_copy(source: Path, folder: Path) -> Partition:
    """Our partition on a copy of the folder, without the files that we are to make ourselves."""
    copy = folder / str(TP)
    shutil.copytree(source, copy)
    for path in copy.iterdir():
        if path.suffix in MADE_BY_US:
            path.unlink()
    config = TopicConfig(segment_bytes=1 << 20, index_interval_bytes=100, retention_ms=-1)
    producers = ProducerStateManager(TP)
    log = Log.open(
        LocalBackend(folder),
        str(TP),
        topic_partition=TP,
        config=config,
        files=FileCache(16),
        producers=producers,
        now_ms=0,
    )
    partition = Partition(
        topic_partition=TP,
        topic_id=log.topic_id,  # type: ignore[arg-type]
        node_id=1,
        log=log,
        producers=producers,
        config=config,
    )
    partition.make_leader_or_follower(
        PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1), 0
    )
    return partition


def files(folder: Path, suffix: str) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))}


def test_the_transaction_indexes_that_we_make_are_kafkas(written: Path, tmp_path: Path) -> None:
    partition = open_copy(written, tmp_path)
    theirs, ours = (files(folder, ".txnindex") for folder in (written, tmp_path / str(TP)))
    assert len(theirs) > 1
    assert ours == theirs
    assert sum(len(segment.txn_index.read_all()) for segment in partition.log.segments) > 20


def test_the_snapshots_that_we_make_say_what_kafkas_say(written: Path, tmp_path: Path) -> None:
    open_copy(written, tmp_path)
    entries = [
        {
            name: {entry.producer_id: entry for entry in decode_snapshot(data)}
            for name, data in files(folder, ".snapshot").items()
        }
        for folder in (written, tmp_path / str(TP))
    ]
    assert len(entries[0]) > 1
    assert entries[1] == entries[0]
    opened = [e for snapshot in entries[1].values() for e in snapshot.values()]
    assert {entry.current_txn_first_offset >= 0 for entry in opened} == {True, False}
