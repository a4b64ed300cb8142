"""Bit rot: disks change bytes of sealed segments, while clients go on and brokers are killed.

Owns: one run of it from a seed, and the verdict.  Must not know how damage is found or repaired.

The fault bound: of every batch at least one replica is sound at any time, and damage comes only
when the damage before it was repaired.  Then every byte has to come back.  A run of changed bytes
always reaches into what the checksum of a batch covers, because readers can notice nothing else.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import sparklog.executors.replication.range_repairer as range_repairer_module
from sparklog.client.admin import Admin
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.errors import DecodeError, KafkaError, SparklogError
from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.range_repair import Piece
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_nodes import FileNode
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import CRC_START, check_batch, iter_batches
from sparklog.wire.records.builder import iter_records
from tests.simulation.hosts import Loss
from tests.simulation.rot_bugs import planted_rot
from tests.simulation.scenario import Verdict
from tests.simulation.workloads.nemesis import START_TIMEOUT_S
from tests.simulation.workloads.scene import encoded
from tests.simulation.world import EPOCH_MS, World

TOPIC = TopicPartition("rotting", 0)
BROKERS = (1, 2, 3)
#: Virtual seconds of trouble, and those within which damage has to be repaired.
LENGTH_S = (8.0, 14.0)
PATIENCE_S = 90.0
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "replica.fetch.backoff.ms": "300",
    "replica.lag.time.max.ms": "1500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.index.size.max.bytes": "8192",
}


@dataclass
class _Run:
    world: World
    acked: dict[int, bytes] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    over: bool = False
    #: Every batch that was seen in a sealed segment while it was sound.
    sealed: set[bytes] = field(default_factory=set)
    #: How often a disk has rotted.
    rots: int = 0

    def files(self, broker_id: int) -> list[FileNode]:
        """The log files of a replica, oldest first."""
        backend = self.world.brokers[broker_id].disk.backend
        paths = f"broker-{broker_id}/{TOPIC}/"
        return [node for path, node in sorted(backend.files(".log")) if path.startswith(paths)]

    def content(self, broker_id: int) -> bytes:
        return b"".join(bytes(node.data) for node in self.files(broker_id))


def run_rot(seed: int, *, bug: str | None = None) -> Verdict:
    """Everything that follows from a seed."""
    chance = random.Random(f"{seed}/rot")
    settings = {**SETTINGS, "log.scrub.interval.ms": chance.choice(("200", "1500"))}
    world = World(seed, brokers=len(BROKERS), settings=settings)
    run = _Run(world)
    with planted_rot(bug), _watched(run):
        try:
            world.run(lambda _: _play(run, chance))
        except Exception as error:
            run.found.append(f"the run: {type(error).__name__}: {error}")
    run.found += [f"the run: {text}" for text in world.unexpected]
    return Verdict(
        seed=seed, found=tuple(run.found), counters=world.counters, trace=tuple(world.trace)
    )


@contextmanager
def _watched(run: _Run) -> Iterator[None]:
    """Meanwhile every write into a sealed segment is looked at."""
    real = range_repairer_module.write_pieces

    def write_pieces(
        files: SegmentFiles,
        pieces: Sequence[Piece],
        epochs: Sequence[EpochEntry],
        *,
        compacted: bool = False,
    ) -> int:
        node = _node(files)
        before, rots = bytes(node.data), run.rots
        replaced = real(files, pieces, epochs, compacted=compacted)
        wanted = bytearray(before)
        for piece in pieces:
            wanted[piece.position : piece.position + len(piece.data)] = piece.data
            if piece.data not in run.sealed:
                run.found.append(f"offset {piece.base_offset} is repaired with other bytes")
        if run.rots == rots and node.data != wanted:
            run.found.append(f"{files.log_path} was changed outside of a damaged range")
        return replaced

    with patch.object(range_repairer_module, "write_pieces", write_pieces):
        yield


def _node(files: SegmentFiles) -> FileNode:
    assert isinstance(files.half, MemoryBackend)
    return dict(files.half.files(".log"))[files.log_path]


async def _play(run: _Run, chance: random.Random) -> None:
    world = run.world
    await world.start()
    admin = await world.cluster_client("admin")
    configs = {
        "segment.bytes": chance.choice(("1500", "4000")),
        "index.interval.bytes": chance.choice(("50", "400", "4096")),
        "min.insync.replicas": "2",
    }
    await Admin(admin).create_topic(TOPIC.topic, 1, replication_factor=3, configs=configs)
    tasks = [
        world.client("producer").start(_produce(run, chance)),
        world.client("reader").start(_read(run, chance)),
        world.loop.create_task(_rot(run, world.stream("rot"))),
        world.loop.create_task(_kill(run, world.stream("kills"))),
    ]
    await world.sleep(chance.uniform(*LENGTH_S))
    run.over = True
    done, late = await asyncio.wait(tasks, timeout=2 * PATIENCE_S)
    for task in done:
        task.result()
    if late:
        run.found.append(f"still at work: {late}")
    await _wait_until_replicas_agree(run)
    _judge(run)


# clients


async def _produce(run: _Run, chance: random.Random) -> None:
    number = 0
    async with await run.world.cluster_client("producer") as cluster:
        data_client = DataClient(cluster)
        while not run.over:
            number += 1
            value = b"%d." % number + b"v" * chance.choice((0, 30, 300))
            try:
                await cluster.topic(TOPIC.topic, Deadline(4))
                batch = encoded((value,), EPOCH_MS)
                produced = await data_client.produce(TOPIC, [batch], timeout_s=4)
            except SparklogError:
                cluster.expire_topics()
            else:
                run.acked[produced.base_offset] = value
            await asyncio.sleep(chance.random() * 0.05)


async def _read(run: _Run, chance: random.Random) -> None:
    """As readers do: what fails its checksum is not believed."""
    async with await run.world.cluster_client("reader") as cluster:
        while not run.over:
            with suppress(SparklogError):
                await _read_once(run, DataClient(cluster), chance)
            await asyncio.sleep(chance.random() * 0.2)


async def _read_once(run: _Run, data_client: DataClient, chance: random.Random) -> None:
    offset = chance.randrange(max(run.acked, default=0) + 1)
    answer = await data_client.fetch(TOPIC, offset, max_bytes=chance.choice((1, 3000)), timeout_s=4)
    try:
        for header, start in iter_batches(answer.records, partial_tail=True):
            check_batch(answer.records, start, header)
            for record in iter_records(answer.records, start, header):
                wanted = run.acked.get(record.offset, record.value)
                if record.value != wanted:
                    run.found.append(f"offset {record.offset} was read with another value")
    except (DecodeError, KafkaError):
        run.world.counters["damaged_reads"] += 1
    else:
        run.world.counters["reads"] += 1


# troubles


async def _rot(run: _Run, chance: random.Random) -> None:
    """Damage one batch on one or two replicas, and wait until it is there again."""
    while not run.over:
        await asyncio.sleep(chance.random())
        batch = _sealed_batch(run, chance)
        if batch is None:
            continue
        victims = chance.sample(BROKERS, chance.choice((1, 1, 2)))
        hit = [broker_id for broker_id in victims if _damage(run, broker_id, batch, chance)]
        run.world.counters["batches_rotted"] += len(hit)
        run.world.counters["rotted_twice"] += len(hit) > 1
        began = run.world.now_ms()
        while any(batch not in run.content(broker_id) for broker_id in hit):
            await asyncio.sleep(0.1)
            if run.world.now_ms() - began > PATIENCE_S * 1000:
                run.found.append(f"a batch is not repaired on {hit} after {PATIENCE_S:g} s")
                return


def _sealed_batch(run: _Run, chance: random.Random) -> bytes | None:
    """A batch that every replica has in a sealed segment, durably."""
    try:
        per_broker = [_sealed_batches(run.files(broker_id)) for broker_id in BROKERS]
    except (DecodeError, KafkaError):
        return None  # what a step of the repair has not reached yet
    common = sorted(set.intersection(*map(set, per_broker)))
    run.sealed.update(common)
    return chance.choice(common) if common else None


def _sealed_batches(files: list[FileNode]) -> list[bytes]:
    found: list[bytes] = []
    for node in files[:-1]:
        data = bytes(node.data)
        if data and data == bytes(node.flushed):
            for head, at in iter_batches(data):
                check_batch(data, at, head)
                found.append(data[at : at + head.size])
    return found


def _damage(run: _Run, broker_id: int, batch: bytes, chance: random.Random) -> bool:
    for node in run.files(broker_id)[:-1]:
        at = node.data.find(batch)
        if at >= 0:
            first = chance.randrange(len(batch))
            size = chance.choice((1, 8, 256))
            end = max(min(first + size, len(batch)), CRC_START + 9)
            for position in range(first, end):
                node.damage(at + position, chance.randint(1, 255))
            run.rots += 1
            run.world.note(f"broker-{broker_id}'s disk rots at {at + first}, {end - first} bytes")
            return True
    return False


async def _kill(run: _Run, chance: random.Random) -> None:
    """One broker at a time; its disk keeps what was flushed."""
    while not run.over:
        await asyncio.sleep(chance.random() * 4)
        broker_id = chance.choice(BROKERS)
        if run.over or not all(map(run.world.is_up, BROKERS)):
            continue
        await run.world.kill_broker(broker_id, chance.choice((Loss.NOTHING, Loss.UNFLUSHED)))
        run.world.counters["crashes"] += 1
        await asyncio.sleep(chance.random() * 3)
        await _bring_back(run, broker_id)


async def _bring_back(run: _Run, broker_id: int) -> None:
    host = run.world.brokers[broker_id]
    while not run.world.is_up(broker_id):
        if not host.is_supervised:
            with suppress(SparklogError, TimeoutError):
                await asyncio.wait_for(asyncio.ensure_future(host.launch()), START_TIMEOUT_S)
        await asyncio.sleep(0.3)


# the end


async def _wait_until_replicas_agree(run: _Run) -> None:
    """Wait until all replicas have the same log, and know of no damage."""
    began = run.world.now_ms()
    for broker_id in BROKERS:
        await _bring_back(run, broker_id)
    while not _replicas_agree(run):
        await asyncio.sleep(0.2)
        if run.world.now_ms() - began > PATIENCE_S * 1000:
            run.found.append("the replicas are not alike and sound at the end")
            return


def _replicas_agree(run: _Run) -> bool:
    for broker_id in BROKERS:
        broker = run.world.brokers[broker_id].broker
        partition = broker.replica_manager.get(TOPIC) if broker is not None else None
        if partition is None or partition.log.offline or partition.log.damage.ranges:
            return False
        if partition.high_watermark != partition.log.log_end_offset:
            return False
    return len({run.content(broker_id) for broker_id in BROKERS}) == 1


def _judge(run: _Run) -> None:
    counters: Counter[str] = run.world.counters
    for broker_id in BROKERS:
        data = run.content(broker_id)
        values: dict[int, bytes | None] = {}
        try:
            for header, start in iter_batches(data):
                check_batch(data, start, header)
                values.update({r.offset: r.value for r in iter_records(data, start, header)})
        except (DecodeError, KafkaError) as error:
            run.found.append(f"broker {broker_id} ends with damage: {error}")
        lost = [offset for offset, value in run.acked.items() if values.get(offset) != value]
        if lost:
            run.found.append(f"broker {broker_id} lost or changed offsets {lost[:5]}")
        broker = run.world.brokers[broker_id].broker
        if broker is not None:
            counters["ranges_repaired"] += broker.counters.damaged_ranges_mended
            counters["ranges_found"] += broker.counters.damaged_ranges_found
            if broker.counters.damaged_ranges_found and not counters["batches_rotted"]:
                run.found.append(f"broker {broker_id} found damage where there is none")
    counters["acked_writes"] += len(run.acked)
