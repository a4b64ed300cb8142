"""Files of logs: Kafka's tool reads ours and our tool reads Kafka's, with the same figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.types import Compression
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.both import Both, batch
from tests.peers.dumped_files import figures_of_kafka, figures_of_ours, verify_index
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.support.proven import proves
from tests.support.served import ServedCluster

FIRST = 1_700_000_000_000
SEGMENTS_MIN = 3


def varied(number: int) -> bytes:
    """Batch ``number`` of a log: every codec, nulls, headers, and timestamps that go back."""
    when = FIRST + 1000 * number - 2500 * (number % 7 == 3)
    records = [
        Record(value=b"%d" % number + b"x" * 3000, key=b"k%d" % (number % 9), timestamp=when),
        Record(value=None, key=b"k%d" % (number % 9), timestamp=when + 3),
        Record(value=b"v", timestamp=when + 1, headers=(("a", b"1"), ("b", None))),
    ]
    return encode_batch(records, compression=Compression(number % 5))


@pytest.fixture(scope="module")
def partition_dirs(both: Both, kafka: KafkaBroker, cluster: ServedCluster) -> dict[str, list[Path]]:
    """The directories of the same partitions on both sides."""
    both.create("dumped", segment_bytes="1048576")
    both.fill("dumped", *(varied(number) for number in range(1500)))
    both.create("dumped-stamped", message_timestamp_type="LogAppendTime")
    both.fill("dumped-stamped", *(varied(number) for number in range(20)))
    both.create("dumped-producers", segment_bytes="1048576")
    sequences: dict[int, int] = {}
    for number in range(40):
        producer_id, count = 5000 + number % 4, 1 + number % 3
        first = sequences.get(producer_id, 0)
        sequences[producer_id] = first + count
        both.fill(
            "dumped-producers",
            batch(
                *[b"x" * 40_000] * count,
                producer_id=producer_id,
                producer_epoch=2,
                base_sequence=first,
            ),
        )
    roots = {"kafka": kafka.log_dir, "ours": cluster.data_dir / "broker-1"}
    names = ("dumped-0", "dumped-stamped-0", "dumped-producers-0")
    return {side: [root / name for name in names] for side, root in roots.items()}


def files(partition_dirs: list[Path], suffix: str) -> Iterator[Path]:
    for partition_dir in partition_dirs:
        yield from sorted(partition_dir.glob("*" + suffix))


@proves("log files", "java")
@pytest.mark.parametrize("side", ["kafka", "ours"])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_both_tools_show_the_same(
    partition_dirs: dict[str, list[Path]], tools: KafkaTools, side: str, suffix: str
) -> None:
    found = list(files(partition_dirs[side], suffix))
    assert len(found) >= SEGMENTS_MIN
    for path in found:
        assert figures_of_ours(path) == figures_of_kafka(tools, path), path


@proves("log files", "java")
@pytest.mark.parametrize("side", ["kafka", "ours"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_are_as_kafka_wants_them(
    partition_dirs: dict[str, list[Path]], tools: KafkaTools, side: str, suffix: str
) -> None:
    for partition_dir in partition_dirs[side]:
        *sealed, active = sorted(partition_dir.glob("*" + suffix))
        for path in sealed:
            verify_index(tools, path, sealed=True)
        verify_index(tools, active, sealed=False)


def test_the_same_batches_make_the_same_logs(partition_dirs: dict[str, list[Path]]) -> None:
    for kafka, ours in zip(partition_dirs["kafka"], partition_dirs["ours"], strict=True):
        if "stamped" in kafka.name:
            continue
        kafka_logs, our_logs = (
            {p.name: p.read_bytes() for p in side.glob("*.log")} for side in (kafka, ours)
        )
        assert our_logs.keys() == kafka_logs.keys()
        assert our_logs == kafka_logs
