"""Somebody deletes, moves, cuts or replaces the files of partitions under running brokers.

With replicas, produces go on within seconds, nothing acknowledged is lost, and the broker copies
the log anew without a restart.  The only replica refuses, and says what is missing.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.records.builder import Record, encode_batch
from tests.attacks.attack_rig import MIB, AttackedCluster, Node
from tests.support.raw_wire import RawWire

#: From the deletion to the next acknowledgement: one look at the files, and an election.
AWAY_SECONDS_MAX = 10.0
HOLD_CPU_S_MAX = 0.5
GROWTH_BYTES_MAX = 64 * MIB
RECORDS = 30
REPLICATED = {"min.insync.replicas": "2"}

Damage = Callable[[Path], None]


def delete_partition_dir(partition_dir: Path) -> None:
    shutil.rmtree(partition_dir)


def move_partition_dir(partition_dir: Path) -> None:
    partition_dir.rename(
        partition_dir.parent.parent / f"moved-{partition_dir.parent.name}-{partition_dir.name}"
    )


def cut_log(partition_dir: Path) -> None:
    with active_log(partition_dir).open("r+b") as file:
        file.truncate(active_log(partition_dir).stat().st_size // 2)


def replace_log(partition_dir: Path) -> None:
    found = active_log(partition_dir)
    other = found.with_name("other")
    other.write_bytes(bytes(2 * found.stat().st_size))
    other.replace(found)


def active_log(partition_dir: Path) -> Path:
    return max(partition_dir.glob("*.log"))


def name_of(damage: Damage) -> str:
    return damage.__name__


def partition_dir_of(cluster: AttackedCluster, node: Node, topic: str) -> Path:
    [found] = cluster.served.data_dir.rglob(f"broker-{node.node_id}/{topic}-0")
    return found


def produce(cluster: AttackedCluster, topic: str, value: bytes) -> int:
    """The error code of one produce, to whoever leads now."""
    with RawWire(cluster.leader(topic).address) as wire:
        batch = encode_batch([Record(value=value)])
        code: int = wire.produce(topic, batch, acks=-1).error_code
        return code


@pytest.mark.parametrize(
    "damage", [delete_partition_dir, move_partition_dir, cut_log, replace_log], ids=name_of
)
def test_others_lead_when_the_files_of_a_leader_go(
    cluster: AttackedCluster, damage: Damage
) -> None:
    topic = f"gone-{damage.__name__}"
    cluster.create_topic(topic, replicas=3, configs=REPLICATED)
    leader = cluster.leader(topic)
    acknowledged = [b"%d" % number for number in range(RECORDS)]
    for value in acknowledged:
        assert produce(cluster, topic, value) == ErrorCode.NONE
    partition_dir = partition_dir_of(cluster, leader, topic)
    with cluster.watched() as costs:
        damage(partition_dir)
        cluster.until(lambda: cluster.leader(topic) != leader, AWAY_SECONDS_MAX)
        began = time.monotonic()
        for number in range(RECORDS):
            value = b"after %d" % number
            while produce(cluster, topic, value) != ErrorCode.NONE:
                assert time.monotonic() - began < AWAY_SECONDS_MAX
            acknowledged.append(value)
        ids = [node.node_id for node in cluster.brokers]
        cluster.until(lambda: in_sync(cluster, topic) == ids)
    with RawWire(cluster.leader(topic).address) as wire:
        values = wire.values(topic)
    # A produce that met the election may have been written twice: it was sent twice.
    assert list(dict.fromkeys(values)) == acknowledged
    size = active_log(partition_dir_of(cluster, cluster.leader(topic), topic)).stat().st_size
    cluster.until(
        lambda: partition_dir.exists() and active_log(partition_dir).stat().st_size == size
    )
    cluster.until(lambda: not list(partition_dir.parent.glob("*-lost")))
    for cost in costs.values():
        assert cost.hold_cpu_s_max < HOLD_CPU_S_MAX
        assert cost.rss_growth_bytes_max < GROWTH_BYTES_MAX


@pytest.mark.parametrize("damage", [delete_partition_dir, cut_log], ids=name_of)
def test_the_only_replica_refuses_reads_and_writes(
    cluster: AttackedCluster, damage: Damage
) -> None:
    topic = cluster.new_topic()
    leader = cluster.leader(topic)
    for number in range(RECORDS):
        assert produce(cluster, topic, b"%d" % number) == ErrorCode.NONE
    damage(partition_dir_of(cluster, leader, topic))
    cluster.until(
        lambda: produce(cluster, topic, b"x") == ErrorCode.KAFKA_STORAGE_ERROR, AWAY_SECONDS_MAX
    )
    with RawWire(leader.address) as wire:
        assert wire.fetch(topic)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert not list(leader_home(cluster, leader).glob(f"{topic}-0.*-lost"))
    logs = cluster.served.data_dir / "logs"

    def said() -> str:
        return "".join(path.read_text(errors="replace") for path in logs.iterdir())

    # The first error may be a sign of the loss, which the broker finds and reports a moment later.
    cluster.until(lambda: f"lost.logs.accept={topic}-0" in said(), AWAY_SECONDS_MAX)


def leader_home(cluster: AttackedCluster, node: Node) -> Path:
    [found] = cluster.served.data_dir.rglob(f"broker-{node.node_id}/meta.properties")
    return found.parent


def in_sync(cluster: AttackedCluster, topic: str) -> list[int]:
    [partition] = cluster.describe(topic).partitions
    return sorted(partition.isr_nodes)


def test_a_broker_comes_back_when_a_mapped_index_is_cut(tmp_path: Path) -> None:
    """A store into what is not there any more of a map ends a process (SIGBUS); the supervisor
    starts it again, and the index is made anew from the log."""
    with AttackedCluster.running(tmp_path / "data") as cluster:
        topic = cluster.new_topic()
        leader = cluster.leader(topic)
        large = b"x" * 5000  # one index entry each
        for _ in range(RECORDS):
            assert produce(cluster, topic, large) == ErrorCode.NONE
        for index in partition_dir_of(cluster, leader, topic).glob("*index"):
            with index.open("r+b") as file:
                file.truncate(0)

        def is_produced() -> bool:
            try:
                return produce(cluster, topic, large) == ErrorCode.NONE
            except (AssertionError, OSError):
                return False  # the broker has just ended

        cluster.until(is_produced)
        with RawWire(cluster.leader(topic).address) as wire:
            assert len(wire.values(topic)) >= RECORDS + 1
