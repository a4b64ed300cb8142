"""Bytes of log files change on the disk while brokers run, and readers make the most of it.

The scrub is as far away as in a cluster that was just started: what is noticed here, readers and
followers notice.
"""

import itertools
from pathlib import Path

import pytest

from sparklog.types import Compression
from sparklog.wire.records.builder import Record, encode_batch
from tests.attacks.attack_rig import MIB, AttackedCluster
from tests.support.raw_wire import RawWire

RECORDS, VALUE_BYTES = 120, 10_000
SEGMENT_BYTES = 300_000
HOLD_CPU_S_MAX = 0.5
_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: AttackedCluster) -> str:
    """A topic with three replicas and several sealed segments."""
    name = f"rotten-{next(_numbers)}"
    cluster.create_topic(
        name,
        replicas=3,
        configs={"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"},
    )
    with RawWire(cluster.leader(name).address) as wire:
        for number in range(RECORDS):
            record = Record(value=b"%06d" % number + b"v" * VALUE_BYTES)
            batch = encode_batch([record], compression=Compression.NONE)
            assert wire.produce(name, batch, acks=-1).error_code == 0
    cluster.until(lambda: len({_sizes(cluster, name, broker_id) for broker_id in (1, 2, 3)}) == 1)
    return name


def _sizes(cluster: AttackedCluster, topic: str, broker_id: int) -> tuple[int, ...]:
    return tuple(path.stat().st_size for path in _files(cluster, topic, broker_id))


def _files(cluster: AttackedCluster, topic: str, broker_id: int) -> list[Path]:
    return sorted(cluster.served.data_dir.glob(f"broker-{broker_id}/{topic}-0/*.log"))


def test_a_reader_that_asks_again_gets_the_right_bytes(
    cluster: AttackedCluster, topic: str
) -> None:
    leader = cluster.leader(topic)
    victim = _files(cluster, topic, leader.node_id)[1]
    before, offset = victim.read_bytes(), int(victim.stem) + 3
    with victim.open("r+b") as file:
        file.seek(4 * (VALUE_BYTES + 80))
        file.write(b"\xee" * 256)
    with cluster.watched() as costs, RawWire(leader.address) as wire:
        for _ in range(3):
            wire.fetch(topic, offset, max_wait_ms=0)
        cluster.until(lambda: victim.read_bytes() == before)
    assert max(cost.hold_cpu_s_max for cost in costs.values()) < HOLD_CPU_S_MAX
    assert max(cost.rss_growth_bytes_max for cost in costs.values()) < 64 * MIB


def test_asking_for_the_same_offset_for_ever_costs_one_check_in_a_while(
    cluster: AttackedCluster, topic: str
) -> None:
    """Each check is of one segment near the offset; ten seconds pass before the next one."""
    leader = cluster.leader(topic)
    with cluster.watched(leader) as costs, RawWire(leader.address) as wire:
        for _ in range(2000):
            code, records = wire.fetch(topic, 3, partition_max_bytes=1, max_wait_ms=0)
            assert (code, len(records) > VALUE_BYTES) == (0, True)
    assert costs[leader.node_id].hold_cpu_s_max < HOLD_CPU_S_MAX
    assert costs[leader.node_id].rss_growth_bytes_max < 64 * MIB
