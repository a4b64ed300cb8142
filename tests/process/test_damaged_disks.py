"""Bytes overwritten on a running broker's disk: repaired by a replica, or named where none is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.types import Compression
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from tests.support.raw_wire import RawWire
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process

RECORDS, VALUE_BYTES = 60, 10_000
PATIENCE_S = 60.0
Start = Callable[[int], ServedCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServedCluster] = []

    def start(brokers: int) -> ServedCluster:
        options = ("--set", "log.scrub.interval.ms=500")
        started.append(ServedCluster(tmp_path / "data", *options, brokers=brokers))
        return started[-1]

    yield start
    for served in started:
        served.kill()


def create(served: ServedCluster, replicas: int) -> tuple[int, RawWire]:
    """Topic ``t`` with one partition; its leader, and a connection to that."""
    configs = (
        CreatableTopicConfig(name="segment.bytes", value="100000"),
        CreatableTopicConfig(name="min.insync.replicas", value=str(min(replicas, 2))),
    )
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=replicas, configs=configs)
    with RawWire(served.bootstrap) as wire:
        [result] = wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=60_000), 7).topics
        assert result.error_code == 0
        found = wire.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 9)
    leader = found.topics[0].partitions[0].leader_id
    [broker] = [node for node in found.brokers if node.node_id == leader]
    connection = RawWire(f"{broker.host}:{broker.port}")
    wait_for(lambda: connection.fetch("t")[0] == 0, PATIENCE_S, "the leader serves")
    return leader, connection


def produce(wire: RawWire, number: int) -> int:
    record = Record(value=b"%06d" % number + b"v" * VALUE_BYTES)
    batch = encode_batch([record], compression=Compression.NONE)
    return int(wire.produce("t", batch, acks=-1).error_code)


def log_files(served: ServedCluster, broker_id: int) -> list[Path]:
    return sorted(served.data_dir.glob(f"**/broker-{broker_id}/t-0/*.log"))


def overwrite(path: Path, at: int) -> None:
    """256 bytes, as something that is not the broker does it."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xee" * 256)


def test_what_is_overwritten_on_a_leaders_disk_is_there_again(start: Start) -> None:
    served = start(3)
    leader, wire = create(served, 3)
    assert [produce(wire, number) for number in range(RECORDS)] == [0] * RECORDS
    files = [log_files(served, broker_id) for broker_id in (leader, 1, 2, 3)]
    wait_for(
        lambda: len({sum(f.stat().st_size for f in each) for each in files}) == 1,
        PATIENCE_S,
        "copied",
    )
    before = [path.read_bytes() for path in files[0]]
    assert len(before) > 3
    victim = files[0][1]
    overwrite(victim, 50_000)
    wait_for(lambda: victim.read_bytes() == before[1], PATIENCE_S, "repaired")
    for each in files:
        assert [path.read_bytes() for path in each] == before
    assert produce(wire, RECORDS) == 0
    code, batches = wire.fetch("t", 14, partition_max_bytes=1)
    assert (code, (decode_records(batches)[0].value or b"")[:6]) == (0, b"000014")
    wait_for(lambda: "are repaired with the bytes of broker" in said(served), PATIENCE_S, "said")
    assert served.stop() == 0


def test_a_single_replica_names_what_is_damaged_and_goes_on(start: Start) -> None:
    served = start(1)
    _, wire = create(served, 1)
    assert [produce(wire, number) for number in range(RECORDS)] == [0] * RECORDS
    path = log_files(served, 1)[1]
    per_batch = path.stat().st_size // 9
    overwrite(path, 50_000)
    first = int(path.stem) + 50_000 // per_batch
    wait_for(lambda: "no other replica has the bytes" in said(served), PATIENCE_S, "found")
    codes = [wire.fetch("t", offset, partition_max_bytes=1)[0] for offset in range(RECORDS)]
    assert {offset: code for offset, code in enumerate(codes) if code} == {
        first: ErrorCode.CORRUPT_MESSAGE
    }
    assert produce(wire, RECORDS) == 0
    assert wire.fetch("t", RECORDS)[0] == 0
    assert f"{path.name} is corrupt at byte" in said(served)
    assert f"(offsets {first} to {first} are damaged)" in said(served)
    assert served.stop() == 0


def said(served: ServedCluster) -> str:
    """What its processes said."""
    logs = sorted((served.data_dir / "logs").glob("**/*.log*"))
    return "".join(path.read_text(errors="replace") for path in logs)
