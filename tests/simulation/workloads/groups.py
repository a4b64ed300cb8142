"""Consumer groups: members that come, stand still, die and come back, and commit what they did.

Some groups have static members, which come back under the same instance id.  While such a member
stands still another process may take its place, and fences it.

Owns: the life of members, what they process before a commit, and how a group is drained at the end.
Must not know what the checkers make of it.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.fetched_records import ConsumedRecord
from sparklog.client.groups import AsyncConsumer, OffsetAndMetadata
from sparklog.client.groups.coordinator_link import CoordinatorLink
from sparklog.client.groups.offset_requests import GroupIdentity
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from tests.simulation.events import GroupDrained, LogId, Processed
from tests.simulation.workloads.group_requests import logs_by_partition
from tests.simulation.workloads.scene import Scene, Topic

#: Virtual time after which a group that does not drain is given up.
DRAIN_TIMEOUT_S = 120.0
COMMIT_S = 2.0
STRATEGIES = (("range",), ("range", "cooperative-sticky"), ("cooperative-sticky",))
#: The share of groups with static members.
STATIC_SHARE = 0.4
#: The group of a consumer that commits without being a member.
ALONE = "alone"


def settings(chance: random.Random) -> dict[str, str]:
    """The settings of a cluster with groups, by Kafka's names."""
    return {
        "offsets.topic.num.partitions": str(chance.choice((1, 2, 3))),
        "offsets.load.buffer.size": str(chance.choice((1, 500, 5_242_880))),
        "offsets.commit.timeout.ms": str(chance.choice((1000, 5000))),
        "group.initial.rebalance.delay.ms": str(chance.choice((0, 0, 300))),
        "group.min.session.timeout.ms": "500",
    }


@dataclass(slots=True, kw_only=True)
class Member:
    """One place in a group; after a crash another process takes it."""

    group: str
    name: str
    options: dict[str, Any]
    lives: int = 0
    task: "asyncio.Task[None] | None" = None
    #: The process that took the place while this one stood still.
    stand_in: "Member | None" = None
    hosts: list[str] = field(default_factory=list)

    @property
    def is_static(self) -> bool:
        return "group_instance_id" in self.options

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    """One or two groups of two to four members, and what happens to them."""
    members: list[Member] = []
    for number in range(chance.choice((1, 1, 2))):
        group = f"group-{number}"
        scene.groups[group] = tuple(chance.sample(scene.topics, chance.choice((1, 2, 3))))
        options = _options(group, chance)
        is_static = scene.world.stream(f"{group} is static").random() < STATIC_SHARE
        members += [
            _member(group, place, options, is_static)
            for place in range(chance.choice((2, 2, 3, 4)))
        ]
    scene.client_hosts += [f"client-{member.name}" for member in members]
    for member in members:
        _start(scene, member)
    while not scene.over:
        await scene.pause(chance, 2500)
        member = chance.choice(members)
        if chance.random() < 0.5:
            await _pause(scene, member, chance)
        else:
            await _kill(scene, member, chance)
    members += [member.stand_in for member in members if member.stand_in is not None]
    tasks = [member.task for member in members if member.task is not None]
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


def _member(group: str, place: int, options: dict[str, Any], is_static: bool) -> Member:
    name = f"{group}-member-{place}"
    if is_static:
        options = {**options, "group_instance_id": name}
    stand_in = Member(group=group, name=f"{name}-stand-in", options=options) if is_static else None
    return Member(group=group, name=name, options=options, stand_in=stand_in)


def _options(group: str, chance: random.Random) -> dict[str, Any]:
    session_ms = chance.choice((700, 1500, 3000))
    return {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": chance.choice(STRATEGIES),
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": session_ms // 4,
        "max_poll_interval_ms": chance.choice((1500, 4000)),
        "request_timeout_ms": 2000,
        "default_api_timeout_ms": 4000,
        "fetch_max_wait_ms": 200,
    }


def _start(scene: Scene, member: Member) -> None:
    member.lives += 1
    chance = scene.world.stream(f"{member.name} life {member.lives}")
    member.task = scene.world.client(member.name).start(_live(scene, member, chance))


async def _pause(scene: Scene, member: Member, chance: random.Random) -> None:
    """Its process stands still; meanwhile the group goes on without it, perhaps."""
    loop, node = scene.world.loop, scene.world.client(member.name).node
    scene.world.note(f"{node.name} is paused")
    scene.count("member_pauses")
    loop.hold(node)
    stand_in = member.stand_in
    if stand_in is not None and not stand_in.is_running and not scene.over:
        scene.count("static_members_replaced")
        _start(scene, stand_in)
    await scene.pause(chance, 5000)
    scene.world.note(f"{node.name} goes on")
    loop.release(node)


async def _kill(scene: Scene, member: Member, chance: random.Random) -> None:
    scene.world.kill_client(member.name)
    scene.count("member_kills")
    scene.count("static_member_kills", int(member.is_static))
    await scene.pause(chance, 2000)
    _start(scene, member)


async def _live(scene: Scene, member: Member, chance: random.Random) -> None:
    """Join, consume for a while, leave, and join again, until another process has the place."""
    names = [topic.name for topic in scene.groups[member.group]]
    async with await scene.world.cluster_client(member.name) as cluster:
        while not scene.over:
            consumer, is_fenced = AsyncConsumer(cluster, **member.options), False
            try:
                consumer.subscribe(names)
                await _consume(scene, consumer, member.group, chance)
            except KafkaError as error:
                is_fenced = error.code is ErrorCode.FENCED_INSTANCE_ID
            except SparklogError:
                pass  # out of reach: begin anew
            with suppress(SparklogError):
                await consumer.close(COMMIT_S)
            if is_fenced:
                scene.count("static_members_fenced")
                return
            await scene.pause(chance, 1000)


async def _consume(
    scene: Scene, consumer: AsyncConsumer, group: str, chance: random.Random
) -> None:
    for _ in range(chance.choice((5, 20, 100))):
        if scene.over:
            return
        records = await consumer.poll(0.3, chance.choice((1, 20, 500)))
        if chance.random() < 0.05:
            await scene.pause(chance, 5000)  # too slow for max.poll.interval.ms, perhaps
        offsets = process(scene, group, records)
        with suppress(SparklogError):  # what is not committed is processed once more
            await consumer.commit(offsets, COMMIT_S)


def process(scene: Scene, group: str, records: list[ConsumedRecord]) -> dict[TopicPartition, int]:
    """Write down that these records were processed; the offsets to commit now."""
    taken: dict[TopicPartition, list[ConsumedRecord]] = {}
    for record in records:
        taken.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    logs = logs_by_partition(scene)
    for tp, some in taken.items():
        values = tuple((record.offset, record.value) for record in some)
        scene.history.record(Processed(group=group, log=logs[tp], records=values))
    scene.count("processed_records", len(records))
    return {tp: some[-1].offset + 1 for tp, some in taken.items()}


# a consumer that is no member


async def commit_alone(scene: Scene, name: str, chance: random.Random) -> None:
    """Commits of a consumer without a group's members, each offset higher, and reads of them."""
    async with await scene.world.cluster_client(name) as cluster:
        link = CoordinatorLink(cluster, ALONE, COMMIT_S)
        logs = logs_by_partition(scene)
        offset = 0
        while not scene.over:
            offset += 1
            wanted = chance.sample(list(logs), chance.randint(1, len(logs)))
            with suppress(SparklogError):
                offsets = {tp: OffsetAndMetadata(offset=offset) for tp in wanted}
                await link.commit(GroupIdentity(group_id=ALONE), offsets, COMMIT_S)
            if chance.random() < 0.3:
                with suppress(SparklogError):
                    await link.committed(list(logs), COMMIT_S, require_stable=True)
            await scene.pause(chance, 300)
        await link.close()


# the end


async def drain(scene: Scene) -> None:
    """One more member of each group consumes what is left, to the last record."""
    for group, topics in scene.groups.items():
        name = f"{group}-drainer"
        await scene.world.client(name).run(_drain(scene, group, topics, name))


async def _drain(scene: Scene, group: str, topics: tuple[Topic, ...], name: str) -> None:
    began, ends = scene.now_ms, {}
    async with await scene.world.cluster_client(name) as cluster:
        try:
            ends = await _ends(cluster, [log for topic in topics for log in topic.logs])
            await asyncio.wait_for(_consume_up_to(scene, cluster, group, ends), DRAIN_TIMEOUT_S)
            error = ""
        except (SparklogError, TimeoutError) as problem:
            error = str(problem) or repr(problem)
    scene.count("groups_drained", not error)
    scene.history.record(
        GroupDrained(
            group=group, ends=tuple(ends.items()), took_ms=scene.now_ms - began, error=error
        )
    )


async def _ends(cluster: ClusterClient, logs: list[LogId]) -> dict[LogId, int]:
    wanted = {TopicPartition(log.topic, log.partition): int(OffsetSpec.LATEST) for log in logs}
    found = await DataClient(cluster).list_offsets(wanted, timeout_s=DRAIN_TIMEOUT_S)
    return {log: found[TopicPartition(log.topic, log.partition)].offset for log in logs}


async def _consume_up_to(
    scene: Scene, cluster: ClusterClient, group: str, ends: dict[LogId, int]
) -> None:
    consumer = AsyncConsumer(
        cluster,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=("range", "cooperative-sticky"),
        session_timeout_ms=10_000,
        default_api_timeout_ms=10_000,
        request_timeout_ms=5_000,
    )
    consumer.subscribe(sorted({log.topic for log in ends}))
    ends_by_partition = {TopicPartition(log.topic, log.partition): end for log, end in ends.items()}
    while not await _has_reached(consumer, ends_by_partition):
        try:
            found = await consumer.poll(0.5)
        except KafkaError as error:
            if not error.retriable:
                raise
            continue  # a partition has had no leader for a while
        offsets = process(scene, group, found)
        with suppress(SparklogError):
            await consumer.commit(offsets, COMMIT_S)
    await consumer.close()


async def _has_reached(consumer: AsyncConsumer, ends: dict[TopicPartition, int]) -> bool:
    if consumer.assignment != ends.keys():
        return False
    return all([await consumer.position(tp) >= end for tp, end in ends.items()])


async def read_offsets(scene: Scene) -> None:
    """The committed offsets of all groups, after everything was lost once more."""
    groups = [*scene.groups, *([ALONE] if scene.groups else [])]
    for group in groups:
        name = f"{group}-reader"
        await scene.world.client(name).run(_read_offsets(scene, group, name))


async def _read_offsets(scene: Scene, group: str, name: str) -> None:
    began, error = scene.now_ms, ""
    async with await scene.world.cluster_client(name) as cluster:
        link = CoordinatorLink(cluster, group, COMMIT_S)
        try:
            await link.committed(
                list(logs_by_partition(scene)), DRAIN_TIMEOUT_S, require_stable=True
            )
        except SparklogError as problem:
            error = str(problem) or repr(problem)
        await link.close()
    scene.history.record(
        GroupDrained(group=group, ends=(), took_ms=scene.now_ms - began, error=error)
    )
