"""Consume-transform-produce chains: what a group reads becomes output, exactly once.

Each input record becomes one output record that names it, and the group's offsets are committed in
the transaction of the outputs.  Members join, leave, stand still, die and come back.

Owns: the life of members, and how a chain is drained at the end.  Must not know how outcomes are
checked.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.fetched_records import ConsumedRecord
from sparklog.client.groups import AsyncConsumer
from sparklog.errors import KafkaError, SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from tests.simulation.chain_records import output_of
from tests.simulation.events import LogId
from tests.simulation.transaction_events import ChainDrained
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene
from tests.simulation.workloads.transactional_instance import Instance

#: Virtual time after which a chain that does not drain is given up.
DRAIN_TIMEOUT_S = 60.0
CLOSE_S = 2.0
CALM_MS = 2500
#: Input records of one transaction, at most; their outputs fit into the smallest segment.
BATCH_MAX = 15
GROUP = "chain"
INPUT, OUTPUT = "input", "output"
STRATEGIES = (("range",), ("range", "cooperative-sticky"), ("cooperative-sticky",))


@dataclass(slots=True, kw_only=True)
class Member:
    """One place in the group, with a transactional id of its own."""

    name: str
    options: dict[str, Any]
    is_old: bool
    lives: int = 0
    task: "asyncio.Task[None] | None" = None


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    """A group of two or three members, and what happens to them."""
    session_ms = chance.choice((700, 1500, 3000))
    options = {
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": session_ms // 4,
        "max_poll_interval_ms": chance.choice((1500, 4000)),
        "partition_assignment_strategy": chance.choice(STRATEGIES),
    }
    members = [
        Member(name=f"{name}-member-{place}", options=options, is_old=chance.random() < 0.5)
        for place in range(chance.choice((2, 2, 3)))
    ]
    scene.client_hosts += [f"client-{member.name}" for member in members]
    for member in members:
        _start(scene, member)
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        if scene.over:
            break
        member = chance.choice(members)
        if chance.random() < 0.5:
            await _pause(scene, member, chance)
        else:
            scene.world.kill_client(member.name)
            scene.count("chain_member_kills")
            await scene.pause(chance, 2000)
            _start(scene, member)
    tasks = [member.task for member in members if member.task is not None]
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


def _start(scene: Scene, member: Member) -> None:
    member.lives += 1
    chance = scene.world.stream(f"{member.name} life {member.lives}")
    member.task = scene.world.client(member.name).start(_live(scene, member, chance))


async def _pause(scene: Scene, member: Member, chance: random.Random) -> None:
    loop, node = scene.world.loop, scene.world.client(member.name).node
    scene.world.note(f"{node.name} is paused")
    scene.count("chain_member_pauses")
    loop.hold(node)
    await scene.pause(chance, 5000)
    scene.world.note(f"{node.name} goes on")
    loop.release(node)


def _consumer(cluster: ClusterClient, **options: Any) -> AsyncConsumer:
    consumer = AsyncConsumer(
        cluster,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=2000,
        default_api_timeout_ms=4000,
        fetch_max_wait_ms=200,
        **options,
    )
    consumer.subscribe([INPUT])
    return consumer


async def _live(scene: Scene, member: Member, chance: random.Random) -> None:
    """Join, process for a while, leave, and join again."""
    lives = 0
    async with await scene.world.cluster_client(member.name) as cluster:
        while not scene.over:
            lives += 1
            life = f"{member.name}.{member.lives}.{lives}"
            instance = Instance(scene, cluster, member.name, life, chance, is_old=member.is_old)
            consumer = _consumer(cluster, **member.options)
            with suppress(SparklogError):  # out of reach, or fenced: begin anew
                if await instance.initialize():
                    await _process(scene, consumer, instance, chance)
            with suppress(SparklogError):
                await consumer.close(CLOSE_S)
            if chance.random() < 0.7:
                await instance.close()
            await scene.pause(chance, 1000)


async def _process(
    scene: Scene, consumer: AsyncConsumer, instance: Instance, chance: random.Random
) -> None:
    for _ in range(chance.choice((5, 20, 100))):
        if scene.over:
            return
        records = await consumer.poll(0.3, chance.choice((1, 5, BATCH_MAX)))
        if records and not await transform(scene, consumer, instance, records, chance):
            return


async def transform(
    scene: Scene,
    consumer: AsyncConsumer,
    instance: Instance,
    records: list[ConsumedRecord],
    chance: random.Random,
) -> bool:
    """One transaction; False when the instance cannot go on."""
    first: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, int] = {}
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        first.setdefault(tp, record.offset)
        offsets[tp] = record.offset + 1
    commits = chance.random() < 0.9
    instance.begin()
    try:
        for record in records:
            await instance.send(_output_log(scene, record), output_of(record, instance.number))
        if chance.random() < 0.1:
            await scene.pause(chance, 5000)  # too slow for the group or the transaction, perhaps
        await instance.send_offsets(offsets, consumer.group_metadata())
        if chance.random() < 0.05:
            return False  # it stays open
    except KafkaError:
        commits = False
    outcome = await instance.end(commits=commits)
    if outcome:
        scene.count("chained_records", len(records))
    if outcome is False:
        for tp in sorted(first.keys() & consumer.assignment):
            await consumer.seek(tp, first[tp])
    return outcome is not None


def _output_log(scene: Scene, record: ConsumedRecord) -> LogId:
    (topic,) = [topic for topic in scene.transactional if topic.name == OUTPUT]
    return topic.logs[record.offset % len(topic.logs)]


# the end


async def drain(scene: Scene) -> None:
    """One more member processes what is left, to the last input record."""
    name = f"{GROUP}-drainer"
    await scene.world.client(name).run(_drain(scene, name))


async def _drain(scene: Scene, name: str) -> None:
    began, error = scene.now_ms, ""
    ends: dict[LogId, int] = {}
    (topic,) = [topic for topic in scene.topics if topic.name == INPUT]
    async with await scene.world.cluster_client(name) as cluster:
        try:
            wanted = {tp_of(log): int(OffsetSpec.LATEST) for log in topic.logs}
            found = await DataClient(cluster).list_offsets(wanted, timeout_s=DRAIN_TIMEOUT_S)
            up_to = {log: found[tp_of(log)].offset for log in topic.logs}
            await asyncio.wait_for(_process_up_to(scene, cluster, name, up_to), DRAIN_TIMEOUT_S)
            ends = up_to
        except (SparklogError, TimeoutError) as problem:
            error = str(problem) or repr(problem)
    scene.count("chains_drained", not error)
    took_ms = scene.now_ms - began
    scene.history.record(
        ChainDrained(group=GROUP, ends=tuple(ends.items()), took_ms=took_ms, error=error)
    )


async def _process_up_to(
    scene: Scene, cluster: ClusterClient, name: str, ends: dict[LogId, int]
) -> None:
    chance = scene.world.stream(name)
    wanted = {tp_of(log): end for log, end in ends.items()}
    lives = 0
    while True:
        lives += 1
        instance = Instance(scene, cluster, name, f"{name}.{lives}", chance, is_old=False)
        consumer = _consumer(cluster, session_timeout_ms=10_000)
        try:
            await instance.initialize(forever=True)
            while not await _has_reached(consumer, wanted):
                records = await consumer.poll(0.5, BATCH_MAX)
                if records and not await transform(scene, consumer, instance, records, chance):
                    break
            else:
                return
        except SparklogError:
            await asyncio.sleep(0.2)
        finally:
            with suppress(SparklogError):
                await consumer.close(CLOSE_S)
            await instance.close()


async def _has_reached(consumer: AsyncConsumer, ends: dict[TopicPartition, int]) -> bool:
    if consumer.assignment != ends.keys():
        return False
    return all([await consumer.position(tp) >= end for tp, end in ends.items()])
