"""Disks that are full, read-only or not there: what is said, and that nothing is lost by it."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataResponseBroker
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from tests.support.raw_wire import RawWire
from tests.support.served import ServedCluster

pytestmark = pytest.mark.process

DISK_MIB, BALLAST_MIB = 12, 8
VALUE_BYTES = 100_000
SECONDS_MAX = 120
FULL = "the disk is full; free space or move the data to a larger disk"
Start = Callable[..., ServedCluster]


class SmallDisk:
    """A file system of its own in a mount namespace of its own, which lives as long as a process.

    ``inside`` goes in front of a command that is to see it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        script = f"mount -t tmpfs -o size={DISK_MIB}m tmpfs {folder} && echo mounted && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        self.is_mounted = self._holder.stdout.readline() == "mounted\n"
        pid = str(self._holder.pid)
        self.inside = ("nsenter", "--preserve-credentials", "--user", "--mount", "--target", pid)

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True, timeout=60)

    def take_space(self) -> None:
        size = str(BALLAST_MIB * 1024 * 1024)
        """Leave a few MiB."""
        self.run("fallocate", "--length", size, str(self._ballast))

    def take_the_rest(self) -> None:
        self.run("sh", "-c", f"! cat /dev/zero > {self._ballast}-2")

    def free_space(self) -> None:
        self.run("rm", "-f", str(self._ballast), f"{self._ballast}-2")

    def unmount(self) -> None:
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = SmallDisk(folder)
    try:
        if not disk.is_mounted:
            pytest.skip("this user may not mount a file system")
        yield disk
    finally:
        disk.unmount()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServedCluster] = []

    def start(data_dir: Path, *before: str, options: Sequence[str] = ()) -> ServedCluster:
        errors = tmp_path / "errors"
        served = ServedCluster(data_dir, *options, brokers=1, before=before, errors=errors)
        started.append(served)
        return served

    yield start
    for served in started:
        served.kill()


def create(wire: RawWire, name: str, **configs: str) -> CreatableTopicResult:
    settings = tuple(
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    )
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
    [result] = wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=60_000), 7).topics
    found: CreatableTopicResult = result
    return found


def broker_of(served: ServedCluster, topic: str) -> RawWire:
    """A connection to the broker, which leads the topic."""
    brokers: list[MetadataResponseBroker] = []

    def is_registered() -> bool:
        with RawWire(served.bootstrap) as wire:
            nodes = wire.ask(MetadataRequest(topics=()), 9).brokers
        brokers.extend(node for node in nodes if node.node_id)
        return bool(brokers)

    wait_until(is_registered)
    [broker] = brokers
    connection = RawWire(f"{broker.host}:{broker.port}")
    while connection.fetch(topic)[0]:
        time.sleep(0.01)
    return connection


def value(number: int) -> bytes:
    return b"%d " % number * (VALUE_BYTES // len(b"%d " % number))


def fill(wire: RawWire, topic: str) -> tuple[list[bytes], str]:
    """Produce until it is refused; what was acknowledged, and the reason."""
    acknowledged: list[bytes] = []
    while len(acknowledged) < DISK_MIB * 1024 * 1024 / VALUE_BYTES:
        sent = value(len(acknowledged))
        answer = wire.produce(topic, encode_batch([Record(value=sent)]), acks=-1)
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return acknowledged, answer.error_message or ""
        assert answer.base_offset == len(acknowledged)
        acknowledged.append(sent)
    raise AssertionError("the disk was never full")


def read_all(wire: RawWire, topic: str, count: int) -> list[bytes | None]:
    """The values of so many records; those in the bucket take a while."""
    found: list[bytes | None] = []

    def is_complete() -> bool:
        code, records = wire.fetch(topic, len(found), max_wait_ms=1000)
        assert code == 0
        decoded = decode_records(records, partial_tail=True)
        found.extend([record.value for record in decoded if record.offset >= len(found)])
        return len(found) >= count

    wait_until(is_complete)
    return found


def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    disk: SmallDisk, start: Start, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"  # on a disk of their own: what a full one takes of them is chance
    logs.mkdir()
    disk.run("mkdir", str(disk.folder / "data"))
    disk.run("ln", "-s", str(logs), str(disk.folder / "data/logs"))
    disk.take_space()
    served = start(disk.folder / "data", *disk.inside)
    brokers = served.broker_pids()
    with RawWire(served.bootstrap) as node_0:
        assert create(node_0, "t").error_code == 0
        with broker_of(served, "t") as wire:
            acknowledged, reason = fill(wire, "t")
            assert len(acknowledged) > 10
            assert FULL in reason
            assert wire.values("t") == acknowledged
            disk.take_the_rest()
            refused = create(node_0, "more")
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert FULL in (refused.error_message or "")
            topics = node_0.ask(MetadataRequest(topics=None), 9).topics
            assert [topic.name for topic in topics] == ["t"]

            disk.free_space()
            again = wire.produce("t", encode_batch([Record(value=b"again")]), acks=-1)
            assert (again.error_code, again.base_offset) == (0, len(acknowledged))
            assert create(node_0, "more").error_code == 0
            assert wire.values("t") == [*acknowledged, b"again"]
    assert served.broker_pids() == brokers
    log = (logs / "broker-1.log").read_text()
    assert f"ERROR sparklog.executors.replica_manager.storage_errors t-0: {reason}" in log
    assert served.stop() == 0


def test_what_was_acknowledged_survives_a_stop_on_a_full_disk(
    disk: SmallDisk, start: Start
) -> None:
    disk.take_space()
    served = start(disk.folder / "data", *disk.inside)
    with RawWire(served.bootstrap) as node_0:
        create(node_0, "t")
    with broker_of(served, "t") as wire:
        acknowledged, _ = fill(wire, "t")
    disk.take_the_rest()
    assert served.stop() == 0
    disk.free_space()
    served = start(disk.folder / "data", *disk.inside)
    with broker_of(served, "t") as wire:
        assert wire.values("t") == acknowledged
    assert served.stop() == 0


def test_a_full_disk_takes_records_again_once_the_bucket_is_back(
    disk: SmallDisk, start: Start, tmp_path: Path
) -> None:
    """What is in the bucket leaves a disk without a free block, and nobody has to help."""
    bucket, away, logs = tmp_path / "bucket", tmp_path / "away", tmp_path / "logs"
    bucket.mkdir()
    logs.mkdir()
    disk.run("mkdir", str(disk.folder / "data"))
    disk.run("ln", "-s", str(logs), str(disk.folder / "data/logs"))
    options = ["--journal-dir", str(tmp_path / "journal"), "--remote-dir", str(bucket)]
    for setting in (
        "remote.log.manager.task.interval.ms=500",
        "log.retention.check.interval.ms=500",
        "log.flush.offset.checkpoint.interval.ms=500",
    ):
        options += ["--set", setting]
    disk.take_space()
    served = start(disk.folder / "data", *disk.inside, options=options)
    with RawWire(served.bootstrap) as node_0:
        tiered = create(
            node_0,
            "t",
            remote_storage_enable="true",
            segment_bytes="300000",
            local_retention_bytes="300000",
            retention_ms="-1",
            file_delete_delay_ms="0",
        )
        assert tiered.error_code == 0
    with broker_of(served, "t") as wire:
        bucket.rename(away)
        acknowledged, _ = fill(wire, "t")
        assert len(acknowledged) > 10
    disk.take_the_rest()
    reserve_is_used = "the disk of .* is full: its reserve has the checkpoints"
    wait_until(lambda: re.search(reserve_is_used, (logs / "broker-1.log").read_text()))
    killed = served.broker_pids()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: served.broker_pids() - killed)
    away.rename(bucket)
    with broker_of(served, "t") as wire:
        sent = value(len(acknowledged))
        records = encode_batch([Record(value=sent)])
        wait_until(lambda: not wire.produce("t", records, acks=-1).error_code)
        acknowledged.append(sent)
        assert read_all(wire, "t", len(acknowledged)) == acknowledged
    assert served.stop() == 0


def refusal(served: ServedCluster) -> str:
    """The one line with which it ended."""
    assert (served.bootstrap, served.wait()) == ("", 1)
    line = served.errors.splitlines()[-1]
    assert line.startswith("sparklog: ")
    assert "Traceback" not in served.errors
    return line.removeprefix("sparklog: ")


def test_a_data_dir_that_cannot_be_made_is_named(tmp_path: Path, start: Start) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "data"):
        assert refusal(start(folder)) == (
            f"data_dir={folder} cannot be used: cannot make the folder {folder}: a part of the "
            "path is a file, not a folder; choose another path"
        )
    nowhere = Path("/proc/nowhere/data")
    assert refusal(start(nowhere)) == (
        f"data_dir={nowhere} cannot be used: cannot make the folder {nowhere}: it does not exist; "
        "check the path"
    )


@pytest.mark.parametrize("folder", ["present", "new"])
def test_a_read_only_data_dir_is_named(disk: SmallDisk, start: Start, folder: str) -> None:
    disk.run("mkdir", str(disk.folder / "present"))
    disk.run("mount", "-o", "remount,ro", str(disk.folder))
    data_dir = disk.folder / folder
    said = refusal(start(data_dir, *disk.inside))
    assert said.startswith(f"data_dir={data_dir} cannot be used: cannot ")
    assert "the file system is read-only; mount it writable or choose another folder" in said


def test_a_data_dir_that_lost_its_parts_is_not_taken_for_a_new_one(
    tmp_path: Path, start: Start
) -> None:
    data_dir = tmp_path / "data"
    assert start(data_dir).stop() == 0
    (data_dir / "broker-1").rename(tmp_path / "elsewhere")
    assert "has the directory of broker 1" in refusal(start(data_dir))
    (tmp_path / "elsewhere").rename(data_dir / "broker-1")
    shutil.move(data_dir / "journal", tmp_path / "journal")
    assert "choose the journal_dir and data_dir of one cluster" in refusal(start(data_dir))
    shutil.rmtree(data_dir / "journal", ignore_errors=True)
    shutil.move(tmp_path / "journal", data_dir / "journal")
    assert start(data_dir).stop() == 0
