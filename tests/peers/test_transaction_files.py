"""What transactions leave on the disk: the same history makes the same files on both sides.

Producer ids, times and coordinator epochs are each side's own; everything else is equal, byte by
byte where the format has nothing of those.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparklog.wire.records.batch import iter_batches
from tests.peers.both import Both
from tests.peers.dumped_files import figures_of_kafka, figures_of_ours
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.peers.moving import await_markers, log_of
from tests.peers.transaction_story import OLD_END, OLD_PRODUCE, TransactionStory
from tests.support.proven import proves
from tests.support.served import ServedCluster

TOPIC = "transaction-files"
#: Two of them fill a segment.
LARGE = b"x" * 600_000
#: An entry of a transaction index: version, producer id, first, last and last stable offset.
_ABORTED = struct.Struct(">hqqqq")
#: Where a batch has its leader epoch, CRC, timestamps and producer id.
_OWN_BYTES = ((12, 16), (17, 21), (27, 43), (43, 51))
#: The coordinator epoch stands before the number of headers, which is one byte.
_COORDINATOR_EPOCH = (-5, -1)


@dataclass(frozen=True, kw_only=True)
class Written:
    """One side's partition directory, and the names of its producers by their ids."""

    partition_dir: Path
    names: Mapping[int, str]

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.partition_dir.glob("*" + suffix))


@pytest.fixture(scope="module")
def written(
    both: Both, kafka: KafkaBroker, cluster: ServedCluster
) -> Iterator[tuple[Written, Written]]:
    """Transactions of an old and of a new client, beside each other, and a fenced producer."""
    both.create(TOPIC, segment_bytes="1048576")
    old, new, zombie = stories = [
        TransactionStory(both, f"files-{name}") for name in ("old", "new", "zombie")
    ]
    names: dict[str, dict[int, str]] = {side.name: {} for side in both.sides}
    for story in stories:
        story.init()
        for side in both.sides:
            names[side.name][story.identity(side).producer_id] = story.name
    zombie.write(TOPIC, b"of the zombie")
    markers = 0
    for number in range(6):
        old.add((TOPIC, 0))
        old.write(TOPIC, b"old", sequence=2 * number, version=OLD_PRODUCE)
        new.write(TOPIC, LARGE)
        old.write(TOPIC, b"again", sequence=2 * number + 1, version=OLD_PRODUCE)
        for story, commit in ((old, number % 3 > 0), (new, number % 2 > 0)):
            story.end(commit=commit, version=OLD_END if story is old else 5)
            story.await_state("CompleteCommit" if commit else "CompleteAbort")
            markers += 1
            _await_markers(both, kafka, cluster, markers)
    zombie.init()
    _await_markers(both, kafka, cluster, markers + 1)
    old.add((TOPIC, 0))
    old.write(TOPIC, b"open", sequence=12, version=OLD_PRODUCE)
    dirs = _dirs(kafka, cluster)
    yield (
        Written(partition_dir=dirs[0], names=names["kafka"]),
        Written(partition_dir=dirs[1], names=names["ours"]),
    )
    for story in stories:
        story.close()


def _dirs(kafka: KafkaBroker, cluster: ServedCluster) -> tuple[Path, Path]:
    return kafka.log_dir / f"{TOPIC}-0", cluster.data_dir / "broker-1" / f"{TOPIC}-0"


def _await_markers(both: Both, kafka: KafkaBroker, cluster: ServedCluster, count: int) -> None:
    """The next record comes behind the marker on both sides, and is not refused as too early."""
    del both
    for partition_dir in _dirs(kafka, cluster):
        await_markers(partition_dir, count)


def neutral(batch: bytes, *, is_control: bool) -> bytes:
    """A batch without what is each side's own."""
    found = bytearray(batch)
    for start, end in (*_OWN_BYTES, *([_COORDINATOR_EPOCH] if is_control else [])):
        found[start:end] = bytes(end - start)
    return bytes(found)


def test_the_logs_are_the_same(written: tuple[Written, Written]) -> None:
    """Control batches too."""
    kafka, ours = (
        [
            (
                side.names.get(header.producer_id),
                header.is_control,
                neutral(data[start : start + header.size], is_control=header.is_control),
            )
            for data in [log_of(side.partition_dir)]
            for header, start in iter_batches(data)
        ]
        for side in written
    )
    assert ours == kafka
    assert sum(is_control for _, is_control, _ in ours) == 13


def test_the_transaction_indexes_are_the_same(written: tuple[Written, Written]) -> None:
    kafka, ours = (
        {
            path.name: [
                (version, side.names[producer_id], *offsets)
                for version, producer_id, *offsets in _ABORTED.iter_unpack(path.read_bytes())
            ]
            for path in side.files(".txnindex")
            if path.stat().st_size
        }
        for side in written
    )
    assert ours == kafka
    assert sum(map(len, ours.values())) == 6


@proves("log files", "java")
def test_the_snapshots_are_the_same(written: tuple[Written, Written], tools: KafkaTools) -> None:
    kafka, ours = written
    assert [path.name for path in ours.files(".snapshot")] == [
        path.name for path in kafka.files(".snapshot")
    ]
    for of_kafka, of_ours in zip(kafka.files(".snapshot"), ours.files(".snapshot"), strict=True):
        shown = figures_of_kafka(tools, of_ours)
        assert shown == figures_of_ours(of_ours)
        assert _rows(shown, ours.names) == _rows(figures_of_kafka(tools, of_kafka), kafka.names)


def _rows(shown: list[dict[str, Any]], names: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """The last row of each producer, which is what a broker goes on with.

    Ours have a row for each batch that is remembered, so that a repetition of any of them is
    recognised after a restart.  Kafka remembers one batch of a producer then.
    """
    return {
        names[row["producer_id"]]: {
            key: value
            for key, value in row.items()
            if key not in ("producer_id", "timestamp", "coordinator_epoch")
        }
        for row in shown
    }


@proves("log files", "java")
@pytest.mark.parametrize("suffix", [".log", ".txnindex"])
def test_kafkas_tool_reads_ours(
    written: tuple[Written, Written], tools: KafkaTools, suffix: str
) -> None:
    _, ours = written
    for path in ours.files(suffix):
        assert figures_of_kafka(tools, path) == figures_of_ours(path)


# -- the state of transactional ids

#: Times, and ids that a side has made up.
_OWN_FIELDS = frozenset(
    {
        "producerId",
        "previousProducerId",
        "transactionLastUpdateTimestampMs",
        "transactionStartTimestampMs",
    }
)
_RECORD = re.compile(r" key: (\{.*\}) payload: (\{.*\})$")


@proves("transaction state", "java")
def test_kafkas_tool_reads_the_state_of_our_transactional_ids(
    written: tuple[Written, Written], kafka: KafkaBroker, cluster: ServedCluster, tools: KafkaTools
) -> None:
    names = sorted(set(written[0].names.values()))
    of_kafka, of_ours = (
        _states(tools, log_dir, names) for log_dir in (kafka.log_dir, cluster.data_dir / "broker-1")
    )
    assert of_ours == of_kafka
    assert [len(of_ours[name]) for name in names] == [19, 20, 5]


def _states(tools: KafkaTools, log_dir: Path, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The values of these ids, each in the order of its log.

    The first record of a partition of ours is that of a new coordinator, which the tool ignores.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for path in sorted(log_dir.glob("__transaction_state-*/*.log")):
        done = tools.run("DumpLogSegments", "--transaction-log-decoder", "--files", str(path))
        assert (done.code, done.err) == (0, ""), done
        for line in done.lines:
            record = _RECORD.search(line)
            if record is None:
                continue
            name = json.loads(record[1])["data"]["transactionalId"]
            value = json.loads(record[2])
            if name in found:
                fields = {k: v for k, v in value["data"].items() if k not in _OWN_FIELDS}
                found[name].append({"version": value["version"], **fields})
    return found
