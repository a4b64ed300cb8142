"""The drill: every disk of a cluster is gone, and ``sparklog restore`` brings back what it can."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.client.blocking import BlockingClient
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import OffsetSpec, TopicPartition
from tests.support.batches import batch
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

PARTITIONS = 3
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "20000",
    "local.retention.bytes": "20000",
    "retention.ms": "-1",
}
SETTINGS = (
    *("--set", "remote.log.manager.task.interval.ms=100"),
    *("--set", "offsets.topic.num.partitions=3"),
)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[ServedCluster]]:
    """The clusters of a test, which are killed at its end."""
    clusters: list[ServedCluster] = []
    yield clusters
    for cluster in clusters:
        cluster.kill()


def fill(bootstrap: str, topic: str, first: int, count: int) -> None:
    with sparklog.Producer(bootstrap, batch_bytes=5_000) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%08d" % number + b"x" * 200, partition=number % PARTITIONS)


def fewest_copied(remote_dir: Path) -> int:
    """The number of segments that every partition has in the remote_dir at least."""
    counts = [sum(1 for _ in remote_dir.glob(f"*/{n}/segments/*.log")) for n in range(PARTITIONS)]
    return min(counts)


def read(
    bootstrap: str, topic: str, group: str, partitions: int = PARTITIONS
) -> dict[int, list[int]]:
    """The numbers in each partition, in their order."""
    with BlockingClient(bootstrap) as client:
        wanted = {TopicPartition(topic, n): OffsetSpec.LATEST for n in range(partitions)}
        ends = client.run(client.async_admin.list_offsets(wanted), client.timeout_s)
    left = sum(end.offset for end in ends.values())
    found: dict[int, list[int]] = {number: [] for number in range(partitions)}
    with sparklog.Consumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while left:
            for record in consumer.poll():
                assert record.value is not None
                found[record.partition].append(int(record.value[:8]))
                left -= 1
        consumer.commit()
    return found


def every(count: int) -> dict[int, list[int]]:
    return {part: list(range(part, count, PARTITIONS)) for part in range(PARTITIONS)}


def described(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows of ``sparklog topics describe``."""
    capsys.readouterr()
    assert run(["topics", "describe", "tiered", "-b", bootstrap, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["partitions"]
    return rows


def test_a_cluster_comes_back_from_journal_and_bucket(
    tmp_path: Path, started: list[ServedCluster], capsys: pytest.CaptureFixture[str]
) -> None:
    data, remote_dir = tmp_path / "data", tmp_path / "remote"
    places = ("--journal-dir", str(tmp_path / "journal"), "--remote-dir", str(remote_dir))
    first = ServedCluster(data, *places, *SETTINGS, brokers=2)
    started.append(first)
    with BlockingClient(first.bootstrap) as client:
        client.admin.create_topic("tiered", PARTITIONS, replication_factor=2, configs=CONFIGS)
        client.admin.create_topic("plain", 1, replication_factor=2)
    fill(first.bootstrap, "tiered", 0, 3_000)
    with sparklog.Producer(first.bootstrap) as producer:
        producer.send("plain", b"lost")
    assert read(first.bootstrap, "tiered", "before") == every(3_000)
    wait_for(lambda: fewest_copied(remote_dir) >= 9)
    wait_for(lambda: {row["copy_lag_bytes"] for row in described(first.bootstrap, capsys)} == {0})
    for row in described(first.bootstrap, capsys):
        assert row["remote_bytes"] > 9 * 20_000 * 0.9
        assert row["local_bytes"] > 20_000
        assert row["earliest_local"] <= row["latest_tiered"] < row["latest"]
    assert run(["topics", "describe", "tiered", "-b", first.bootstrap]) == 0
    assert "copy_lag_bytes" in capsys.readouterr().out
    everything = first.process.pid, *first.broker_pids()
    first.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything))
    shutil.rmtree(data)
    newer = uuid4()  # a topic of which this journal does not know
    (remote_dir / str(newer) / "0" / "segments").mkdir(parents=True)

    refused = ServedCluster(data, *places, command="restore", brokers=1)
    assert (refused.bootstrap, refused.wait()) == ("", 1)
    assert "these topics are not copied to the remote_dir" in refused.errors
    assert ": plain;" in refused.errors
    assert not data.exists()

    second = ServedCluster(data, *places, *SETTINGS, "--accept-loss", command="restore", brokers=1)
    started.append(second)
    assert second.bootstrap, second.errors
    *lines, unknown = second.lines
    assert unknown == f"unknown topic_id={newer}\n"
    assert (remote_dir / str(newer) / "0" / "segments").is_dir()
    back = {line.split()[1]: line for line in lines}
    assert list(back) == ["topic=__consumer_offsets", "topic=plain", "topic=tiered"]
    assert "empty=1 lost='everything'" in back["topic=plain"]
    assert "lost='what was not copied'" in back["topic=tiered"]
    logs = "".join(path.read_text() for path in (data / "logs").glob("broker-*.log"))
    assert logs.count("unclean recovery of tiered-") == PARTITIONS
    values = read(second.bootstrap, "tiered", "after")
    for number, found in values.items():
        assert found == every(3_000)[number][: len(found)]
        assert len(found) > 700
    assert f"offsets={sum(map(len, values.values()))} " in back["topic=tiered"]
    fill(second.bootstrap, "tiered", 3_000, 600)
    with sparklog.Producer(second.bootstrap) as producer:
        producer.send("plain", b"new")
    assert second.stop() == 0

    third = ServedCluster(data, *places, *SETTINGS, brokers=2)
    started.append(third)
    expected = {n: found + every(3_600)[n][1_000:] for n, found in values.items()}
    assert read(third.bootstrap, "tiered", "at last") == expected
    assert third.stop() == 0


TP = TopicPartition("tiered", 0)


class NumberedBatches:
    """An idempotent producer that writes a record a time, and goes on after any restart."""

    def __init__(self, identity: ProducerIdentity, first_offset: int) -> None:
        self.identity = identity
        self.first_offset = first_offset

    def write(self, client: BlockingClient, offset: int) -> int:
        """Write the record that belongs at this offset; the offset that the broker answers."""
        record = batch(
            b"%08d" % offset + b"x" * 1_000,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=offset - self.first_offset,
        )
        return client.produce(TP, [record]).base_offset


def manifest_of(remote_dir: Path) -> Manifest:
    """The manifest of the only tiered partition."""
    ((topic_id,),) = [[UUID(each.parent.name) for each in remote_dir.glob("*/0")]]
    return ManifestLog(LocalBackend(remote_dir), topic_id, 0).load()


def test_an_older_copy_of_the_journal_restores_what_the_bucket_has(
    tmp_path: Path, started: list[ServedCluster]
) -> None:
    """The copy is from before later leader epochs and blocks of producer ids.  Idempotent producers
    go on, new ones are not taken for others, and segments are copied as before."""
    data, journal, remote_dir = (tmp_path / name for name in ("data", "journal", "remote"))
    places = ("--journal-dir", str(journal), "--remote-dir", str(remote_dir), *SETTINGS)

    def start(**options: Any) -> ServedCluster:
        started.append(ServedCluster(data, *places, brokers=1, **options))
        assert started[-1].bootstrap, started[-1].errors
        return started[-1]

    cluster = start()
    with BlockingClient(cluster.bootstrap) as client:
        client.admin.create_topic("tiered", 1, configs=CONFIGS)
        client.init_producer_id()
    assert cluster.stop() == 0
    shutil.copytree(journal, tmp_path / "older")
    for _ in range(3):  # each start has leader epochs of its own
        assert start().stop() == 0
    cluster = start()
    with BlockingClient(cluster.bootstrap) as client:
        writer = NumberedBatches(client.init_producer_id(), 0)
        for offset in range(100):
            assert writer.write(client, offset) == offset
    wait_for(lambda: sum(1 for _ in remote_dir.glob("*/0/segments/*.log")) >= 4)
    everything = cluster.process.pid, *cluster.broker_pids()
    cluster.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything))
    before = manifest_of(remote_dir)
    end = before.end_offset
    assert end is not None
    for folder in (data, journal):
        shutil.rmtree(folder)
    (tmp_path / "older").rename(journal)

    cluster = start(command="restore")
    assert cluster.lines == [
        f"restored topic=tiered partitions=1 offsets={end} lost='what was not copied'\n"
    ]
    with BlockingClient(cluster.bootstrap) as client:
        assert writer.write(client, end - 1) == end - 1, "it is known as a duplicate"
        for offset in range(end, end + 60):
            assert writer.write(client, offset) == offset
        newer = NumberedBatches(client.init_producer_id(), end + 60)
        assert newer.identity.producer_id > writer.identity.producer_id
        assert newer.write(client, end + 60) == end + 60
    assert read(cluster.bootstrap, "tiered", "after", 1) == {0: list(range(end + 61))}
    wait_for(lambda: (manifest_of(remote_dir).end_offset or 0) > end)
    assert manifest_of(remote_dir).leader_epoch > before.leader_epoch
    assert cluster.stop() == 0
