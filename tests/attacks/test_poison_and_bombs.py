"""Poisoned batches and small bombs: what a client may send, and what it then costs others.

The attacks: record counts that lie, garbage and broken compression under a right CRC, batches of a
few kilobytes that decompress to more than 100 MB, many lookups by timestamp of such batches, and
bytes overwritten on a leader's disk.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.cli.app import run
from sparklog.errors import ErrorCode
from sparklog.types import Compression
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.records.batch import pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from tests.attacks.attack_rig import MIB, AttackedCluster
from tests.support.bombs import bomb, peak_bytes
from tests.support.raw_wire import RawWire

#: As many records as any reader takes of one batch: 132 MB in 11 KB.
BOMB_RECORDS = 18_900_000
LOOKUPS = 16
#: More than a lookup decodes at once in a batch: the lookups are long parts.
LOOKED_UP_RECORDS = 4_000_000
#: The lookups of one bomb run one after the other.
LOOKUP_SECONDS_MAX = 120.0
#: Lookups that ran on a bomb each, and one that ran beside them, may take this much CPU time of a
#: loop: a worker thread shares the interpreter with it.
HOLD_CPU_S_MAX = 0.5
LOOKUP_RSS_MAX = 96 * MIB


def around(section: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """A right CRC around any bytes."""
    return pack_batch(
        section, attributes=int(codec), record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=50,
    )  # fmt: skip


def good(*values: bytes, timestamp: int = 0) -> bytes:
    return encode_batch([Record(value=value, timestamp=timestamp) for value in values])


POISON = {
    "garbage": around(b"\xee" * 700, 2),
    "broken zstd": around(b"\x28\xb5\x2f\xfd" + b"\x55" * 90, 2, Compression.ZSTD),
    "a plausible lie": around(good(b"a")[61:] * 3, 2),
}


def send(cluster: AttackedCluster, topic: str, *batches: bytes) -> list[int]:
    """Error codes."""
    with RawWire(cluster.leader(topic).address) as wire:
        return [wire.produce(topic, each, acks=-1).error_code for each in batches]


def look_up(address: str, topic: str, timestamp: int) -> int:
    """The offset that a lookup by timestamp gives; -1 without one.  Fails on an error."""
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    with RawWire(address, seconds_max=LOOKUP_SECONDS_MAX) as wire:
        request = ListOffsetsRequest(
            replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(part,)),)
        )
        [answered] = wire.ask(request, 5).topics[0].partitions
    assert answered.error_code == ErrorCode.NONE
    offset: int = answered.offset
    return offset


def consume(cluster: AttackedCluster, topic: str, *options: str) -> int:
    """The exit code of ``sparklog consume``."""
    arguments: Sequence[str] = ("consume", topic, "-b", cluster.bootstrap, *options)
    return run([*arguments])


@pytest.mark.parametrize("codec", list(Compression))
def test_a_count_that_lies_does_not_move_the_end_of_the_log(
    cluster: AttackedCluster, codec: Compression
) -> None:
    topic = cluster.new_topic()
    for count in (2**31 - 1, 20_000_000):
        [code] = send(cluster, topic, around(b"\x28\xb5\x2f\xfd" + b"x" * 900, count, codec))
        assert code == ErrorCode.INVALID_RECORD
    assert look_up(cluster.leader(topic).address, topic, -1) == 0
    assert send(cluster, topic, good(b"a")) == [0]


@pytest.mark.parametrize("name", POISON)
def test_poison_stops_a_consumer_with_an_error_and_there_is_a_way_past(
    cluster: AttackedCluster, name: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic = cluster.new_topic()
    sent = good(b"one"), POISON[name], good(b"two", timestamp=40)
    assert send(cluster, topic, *sent) == [0, 0, 0]
    assert consume(cluster, topic, "--from-beginning", "-e") == 1
    out, errors = capfdbinary.readouterr()
    assert out.split()[:1] == [b"one"]
    assert b"two" not in out
    assert f"{topic}-0".encode() in errors
    assert b"--skip-undecodable" in errors
    assert consume(cluster, topic, "--from-beginning", "-e", "--skip-undecodable") == 0
    out, errors = capfdbinary.readouterr()
    assert (out.split()[0], out.split()[-1]) == (b"one", b"two")
    assert b"of 1 batches that cannot be read" in errors
    assert look_up(cluster.leader(topic).address, topic, 30) == 3


@pytest.mark.parametrize("name", POISON)
def test_a_topic_that_validates_records_takes_no_poison(
    cluster: AttackedCluster, name: str
) -> None:
    topic = f"validated-{sorted(POISON).index(name)}"
    cluster.create_topic(topic, replicas=3, configs={"sparklog.validate.batches": "records"})
    with cluster.watched(cluster.leader(topic)) as costs:
        codes = send(cluster, topic, good(b"one"), POISON[name], good(b"two"))
    assert codes == [0, ErrorCode.INVALID_RECORD, 0]
    with RawWire(cluster.leader(topic).address) as wire:
        assert wire.values(topic) == [b"one", b"two"]
    [cost] = costs.values()
    assert cost.hold_cpu_s_max < HOLD_CPU_S_MAX


def test_five_records_of_a_bomb_cost_five_records(
    cluster: AttackedCluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic = cluster.new_topic()
    assert send(cluster, topic, bomb(BOMB_RECORDS)) == [0]
    began = time.process_time()
    peak = peak_bytes(lambda: consume(cluster, topic, "--from-beginning", "--max", "5"))
    assert capfdbinary.readouterr().out == b"\n" * 5
    assert peak < 24 * MIB
    assert time.process_time() - began < 5


def test_many_lookups_of_bombs_at_once_have_one_bound(cluster: AttackedCluster) -> None:
    topic = cluster.new_topic()
    assert send(cluster, topic, bomb(LOOKED_UP_RECORDS, timestamp=1000, max_timestamp=2000)) == [0]
    leader = cluster.leader(topic)
    ordinary = cluster.new_topic()
    while cluster.leader(ordinary) != leader:
        ordinary = cluster.new_topic()
    assert send(cluster, ordinary, good(b"a")) == [0]
    look_up(leader.address, topic, 1500)  # what the first search loads is no attack
    waited: list[float] = []
    with cluster.watched(leader) as costs, ThreadPoolExecutor(LOOKUPS) as pool:
        found = [pool.submit(look_up, leader.address, topic, 1001 + n) for n in range(LOOKUPS)]
        over = threading.Event()
        while not over.is_set():
            began = time.monotonic()
            look_up(leader.address, ordinary, -1)
            waited.append(time.monotonic() - began)
            if all(each.done() for each in found):
                over.set()
    # The header claims a later timestamp than any record has.
    assert [each.result() for each in found] == [-1] * LOOKUPS
    [cost] = costs.values()
    assert cost.rss_growth_bytes_max < LOOKUP_RSS_MAX
    assert cost.hold_cpu_s_max < HOLD_CPU_S_MAX
    assert len(waited) > LOOKUPS  # offsets that need no search are answered all the while


def test_bytes_overwritten_on_the_disk_are_not_printed(
    cluster: AttackedCluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic = cluster.new_topic()
    for n in range(3):
        assert send(cluster, topic, good(b"value %d " % n * 100)) == [0]
    [path] = cluster.served.data_dir.rglob(f"{topic}-0/*.log")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xee" * 256)
    assert consume(cluster, topic, "--from-beginning", "-e") == 1
    out, errors = capfdbinary.readouterr()
    assert b"\xee" not in out
    assert f"{topic}-0".encode() in errors
    assert consume(cluster, topic, "--from-beginning", "-e", "--skip-undecodable") == 0
    out, errors = capfdbinary.readouterr()
    assert b"value 0" in out
    assert b"value 2" in out
    assert b"\xee" not in out
