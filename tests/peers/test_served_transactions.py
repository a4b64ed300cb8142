"""Transactions in the log: what Kafka wrote of them, read by our tool and served by us."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparklog.types import OffsetSpec
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.records.batch import iter_batches
from tests.peers.both import Both, Side, batch, list_offsets
from tests.peers.dumped_files import figures_of_kafka, figures_of_ours
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.peers.moving import await_markers, log_of, move
from tests.peers.serving import RETENTION, broker_address
from tests.support.served import ServedCluster

TOPIC = "in-transactions"
SECONDS_MAX = 60.0
#: The one that stays open must outlast the tests.
TRANSACTION_TIMEOUT_MS = 900_000
#: Ours was started twice.
LEADER_EPOCH = (r".*\.leader_epoch",)
CLEAN_MARKER = ".kafka_cleanshutdown"


class Writer:
    """A transactional producer."""

    def __init__(self, kafka: KafkaBroker, name: str) -> None:
        self._producer = Producer({
            "bootstrap.servers": kafka.address,
            "transactional.id": name,
            "linger.ms": 0,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "log_level": 0,
        })  # fmt: skip
        self._producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(TOPIC, value, partition=0)
        assert self._producer.flush(SECONDS_MAX) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS_MAX)


@pytest.fixture(scope="module")
def writers(both: Both, kafka: KafkaBroker) -> Iterator[list[Writer]]:
    """Several segments of committed and aborted transactions, and one that is still open."""
    both.kafka.create(TOPIC, segment_bytes="1048576")
    first, second, third = writers = [Writer(kafka, name) for name in ("one", "two", "three")]
    for number in range(12):
        first.begin()
        second.begin()
        first.write(b"first %d" % number)
        second.write(b"x" * 200_000, b"second %d" % number)
        both.kafka.fill(TOPIC, batch(b"in no transaction"))
        first.write(b"first again")
        first.commit() if number % 3 else first.abort()
        second.abort() if number % 2 else second.commit()
    third.begin()
    third.write(b"third")
    both.kafka.fill(TOPIC, batch(b"behind an open transaction"))
    first.begin()
    first.write(b"first at last")
    first.abort()
    await_markers(kafka.log_dir / f"{TOPIC}-0", 25)
    both.kafka.fill(TOPIC, batch(b"behind the last marker, and what Kafka notes of it"))
    yield writers
    third.abort()


@pytest.fixture(scope="module")
def partition_dir(writers: list[Writer], kafka: KafkaBroker) -> Path:
    del writers
    return kafka.log_dir / f"{TOPIC}-0"


@pytest.fixture(params=["with their indexes", "without their indexes"])
def ours(
    request: pytest.FixtureRequest, partition_dir: Path, tmp_path: Path
) -> Iterator[tuple[ServedCluster, Path]]:
    """A cluster of ours with a copy of Kafka's files, that recovers them."""
    options = ("--set", "=".join(RETENTION))
    served = ServedCluster(tmp_path / "data", *options, brokers=1)
    try:
        side = Side("ours", {"broker": broker_address(served)})
        side.create(TOPIC, segment_bytes="1048576")
        side.close()
        assert served.stop() == 0
        log_dir = tmp_path / "data" / "broker-1"
        target = log_dir / partition_dir.name
        move(partition_dir, target)
        (log_dir / CLEAN_MARKER).unlink()
        if request.param == "without their indexes":
            for path in list(target.iterdir()):
                if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
                    path.unlink()
        served = ServedCluster(tmp_path / "data", *options, brokers=1)
        assert served.bootstrap, served.errors
        yield served, target
        assert served.stop() == 0
    finally:
        served.kill()


@pytest.mark.parametrize("suffix", [".log", ".txnindex", ".snapshot"])
def test_both_tools_show_the_same(partition_dir: Path, tools: KafkaTools, suffix: str) -> None:
    found = sorted(partition_dir.glob("*" + suffix))
    assert len(found) > 1
    shown = [row for path in found for row in figures_of_kafka(tools, path)]
    assert len(shown) > 2
    assert [row for path in found for row in figures_of_ours(path)] == shown


def without_those_behind(response: FetchResponse) -> FetchResponse:
    """Kafka also names transactions that began behind what it sends, up to its next index entry."""
    [topic] = response.responses
    [data] = topic.partitions
    if not data.aborted_transactions or not data.records:
        return response
    end = list(iter_batches(data.records))[-1][0].next_offset
    aborted = tuple(txn for txn in data.aborted_transactions if txn.first_offset < end)
    named = replace(topic, partitions=(replace(data, aborted_transactions=aborted),))
    return replace(response, responses=(named,))


def test_we_serve_them(
    both: Both, ours: tuple[ServedCluster, Path], partition_dir: Path, tools: KafkaTools
) -> None:
    served, files = ours
    side = Side("ours", {"broker": broker_address(served)})
    side.await_topic(TOPIC)
    pair = Both(both.kafka, side)
    assert side.records(TOPIC) == log_of(partition_dir)
    for timestamp in (OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP):
        for isolation in (0, 1):
            request = list_offsets(TOPIC, timestamp, isolation_level=isolation)
            pair.same(request, 7, where=LEADER_EPOCH)
    for offset in range(0, 110, 7):
        for isolation, size in product((0, 1), (1, 1 << 24)):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
            topics = (FetchTopic(topic=TOPIC, partitions=(wanted,)),)
            kafka, mine = pair.ask(FetchRequest(topics=topics, isolation_level=isolation), 11)
            pair.compare(without_those_behind(kafka), mine, story=f"{offset} {isolation} {size}")
    side.close()
    for path in sorted(partition_dir.glob("*.txnindex")):
        mine = files / path.name
        assert (mine.read_bytes() if mine.exists() else b"") == path.read_bytes(), path
        if mine.exists():
            assert figures_of_kafka(tools, mine) == figures_of_ours(mine)
