"""A tiered topic as Kafka's tools and clients see it: beside Kafka with its ``LocalTieredStorage``.

The same batches go to both, which roll, copy and delete the same segments.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.types import OffsetSpec
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.records.batch import iter_batches
from tests.peers.both import LIST_OFFSETS_VERSION, Both, Side, batch, list_offsets
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.peers.same_words import same_words
from tests.peers.serving import RETENTION, broker_address
from tests.peers.tiered_kafka import local_tiered_storage
from tests.support.kafka_jars import KAFKA_TIERED, JarsUnavailableError, jars_of
from tests.support.served import ServedCluster, serving
from tests.support.waiting import wait_for

TOPIC = "tiered"
FIRST_MS = 1_700_000_000_000
#: Kafka takes no smaller segments.
SEGMENT_BYTES = 1 << 20
BATCHES, BATCH_BYTES = 60, 100_000
#: Batches of one segment, and the base offset of the active segment.
SEGMENT_BATCHES = SEGMENT_BYTES // BATCH_BYTES
LAST_SEGMENT = BATCHES - SEGMENT_BATCHES
CONFIGS = {
    "remote_storage_enable": "true",
    "segment_bytes": str(SEGMENT_BYTES),
    "local_retention_bytes": str(SEGMENT_BYTES),
    "retention_ms": "-1",
}
COMMON = {
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    **dict([RETENTION]),
}


@pytest.fixture(scope="module")
def tiered_kafka(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        storage = jars_of(KAFKA_TIERED)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("tiered-kafka")
    settings = {**local_tiered_storage(folder / "remote"), **COMMON}
    broker = KafkaBroker(jars, folder / "node", settings, more_jars=(storage,))
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def tiered_cluster(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    del jars  # without Kafka there is nothing to compare with
    folder = tmp_path_factory.mktemp("tiered-served")
    options = [option for pair in COMMON.items() for option in ("--set", "=".join(pair))]
    remote = ("--remote-dir", str(folder / "remote"))
    with serving(folder / "data", *remote, *options, brokers=1) as served:
        yield served


@pytest.fixture(scope="module")
def tiered(tiered_kafka: KafkaBroker, tiered_cluster: ServedCluster) -> Iterator[Both]:
    """Both have copied the five sealed segments, and keep the files of the last one of these."""
    both = Both(
        Side("kafka", {"broker": tiered_kafka.address}),
        Side("ours", {"broker": broker_address(tiered_cluster)}),
    )
    for side in both.sides:
        side.create(TOPIC, 1, **CONFIGS)
    for number in range(BATCHES):
        value = (b"%06d" % number).ljust(BATCH_BYTES, b"x")
        both.fill(TOPIC, batch(value, timestamp=FIRST_MS + number * 1000))
    for side in both.sides:
        wait_for(lambda side=side: is_at_rest(side), what=f"{side.name} copies and deletes")  # type: ignore[misc]
    yield both
    for side in both.sides:
        side.close()


def offset(side: Side, spec: OffsetSpec) -> int:
    response = side.exchange(list_offsets(TOPIC, int(spec)), LIST_OFFSETS_VERSION)
    [found] = response.topics[0].partitions
    return int(found.offset) if found.error_code == 0 else -1


def is_at_rest(side: Side) -> bool:
    """Whether nothing is left to be copied, and ``local.retention.bytes`` has been applied."""
    found = [offset(side, spec) for spec in (OffsetSpec.LATEST_TIERED, OffsetSpec.EARLIEST_LOCAL)]
    return found == [LAST_SEGMENT - 1, LAST_SEGMENT - SEGMENT_BATCHES]


def test_special_timestamps(tiered: Both) -> None:
    for spec in (
        OffsetSpec.LATEST,
        OffsetSpec.EARLIEST,
        OffsetSpec.MAX_TIMESTAMP,
        OffsetSpec.EARLIEST_LOCAL,
        OffsetSpec.LATEST_TIERED,
    ):
        tiered.same(list_offsets(TOPIC, int(spec)), LIST_OFFSETS_VERSION)
    found = tiered.same(
        list_offsets(TOPIC, int(OffsetSpec.EARLIEST_PENDING_UPLOAD)), ListOffsetsRequest.MAX_VERSION
    )
    assert found.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("number", [0, 1, 25, 26, BATCHES - 1, BATCHES])
def test_offsets_by_time_in_either_tier(tiered: Both, number: int) -> None:
    for timestamp in (FIRST_MS + number * 1000, FIRST_MS + number * 1000 - 1):
        tiered.same(list_offsets(TOPIC, timestamp), LIST_OFFSETS_VERSION)


def test_every_record_is_there(tiered: Both) -> None:
    """A fetch that waited for ``remote.fetch.max.wait.ms`` in vain is answered without records."""
    for side in tiered.sides:
        found: list[int] = []

        def read(side: Side = side, found: list[int] = found) -> bool:
            records = side.records(TOPIC, len(found))
            found += [info.base_offset for info, _ in iter_batches(records)]
            return len(found) >= BATCHES

        wait_for(read, what=f"{side.name} has {found}")
        assert found == list(range(BATCHES)), side.name


def test_kafka_s_tools(
    tools: KafkaTools, tiered: Both, tiered_kafka: KafkaBroker, tiered_cluster: ServedCluster
) -> None:
    del tiered
    addresses = (tiered_kafka.address, tiered_cluster.bootstrap)
    for when in ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered"):
        words = ("--topic", TOPIC, "--time", when)
        run = same_words(tools, addresses, "GetOffsetShell", words)
        assert run.code == 0
        assert run.lines[0].startswith(f"{TOPIC}:0:")
    of_kafka, ours = (described_partitions(tools, address) for address in addresses)
    assert ours == of_kafka
    [partition] = ours
    assert partition["partition"] == f"{TOPIC}-0"
    records = 2 * SEGMENT_BATCHES * BATCH_BYTES  # of the files that are left
    assert records < partition["size"] < records * 1.01


def described_partitions(tools: KafkaTools, address: str) -> list[dict[str, Any]]:
    """What kafka-log-dirs prints of the topic's partitions on broker 1, sizes included."""
    asked = ("--describe", "--topic-list", TOPIC)
    run = tools.ok("LogDirsCommand", "--bootstrap-server", address, *asked)
    brokers = {each["broker"]: each["logDirs"] for each in json.loads(run.lines[-1])["brokers"]}
    [directory] = brokers[1]
    partitions: list[dict[str, Any]] = directory["partitions"]
    return partitions
