"""Transactional producers: several instances of each transactional id, some of them zombies.

Owns: the topics and settings of runs with transactions, the life of instances, and what is done to
their processes.  Must not know how outcomes are checked.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.client.data_client import DataClient
from sparklog.errors import KafkaError, SparklogError
from tests.simulation.events import LogId
from tests.simulation.workloads import idempotent, tiered, topics
from tests.simulation.workloads.scene import Scene, Values
from tests.simulation.workloads.transactional_instance import Instance

#: The share of transactional ids whose clients do not know ``transaction.version``, of those whose
#: clients do, and the rest: of those with both kinds of clients.
OLD_SHARE, NEW_SHARE = 0.35, 0.35
#: How many topics are tiered where there is a bucket.
TIERED_SHARE = 0.75
#: Processes of one transactional id.
PLACES = 2
#: Longest pauses between troubles, in milliseconds.
CALM_MS = 2500
#: Time limit of a request for a producer id, in seconds.
FEED_S = 3.0


def settings(chance: random.Random) -> dict[str, str]:
    """The settings of a cluster with transactions, by Kafka's names."""
    return {
        "transaction.state.log.num.partitions": str(chance.choice((1, 1, 2, 3))),
        "transaction.state.log.min.isr": str(chance.choice((1, 2))),
        "transaction.state.log.segment.bytes": str(chance.choice((700, 2000, 104_857_600))),
        "transaction.state.log.load.buffer.size": str(chance.choice((1, 700, 5_242_880))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
        "offsets.topic.num.partitions": str(chance.choice((1, 2))),
        "offsets.topic.segment.bytes": str(chance.choice((70_000, 104_857_600))),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.min.cleanable.ratio": "0.1",
        "log.cleaner.dedupe.buffer.size": "1048576",
    }


async def create_topics(scene: Scene, chance: random.Random) -> None:
    """The input of chains, which is a topic like any other, and the topics of transactions."""
    has_bucket = scene.world.bucket is not None
    tiering = scene.world.stream("tiered transactions") if has_bucket else None
    async with await scene.world.cluster_client("setup") as cluster:
        for name, partitions in (
            ("input", chance.choice((1, 2))),
            ("output", chance.choice((1, 2, 3))),
            ("ledger", chance.choice((1, 2))),
        ):
            factor = min(3, len(scene.world.brokers) - len(scene.later))
            configs = {
                "segment.bytes": chance.choice(("1500", "6000", "1048576")),
                "index.interval.bytes": chance.choice(("50", "4096")),
            }
            if chance.random() < 0.6:
                configs["flush.messages"] = "1"
            if factor > 1:
                configs["min.insync.replicas"] = chance.choice("122")
            if tiering is not None and tiering.random() < TIERED_SHARE:
                configs |= tiered.configs(tiering)
            topic = await topics.create(scene, cluster, name, partitions, configs, chance, factor)
            assert topic is not None
            (scene.topics if name == "input" else scene.transactional).append(topic)


async def feed(scene: Scene, name: str, chance: random.Random) -> None:
    """Write the input of chains, not too much of it."""
    (topic,) = [topic for topic in scene.topics if topic.name == "input"]
    values, sequences = Values(name, chance), dict[LogId, idempotent.Sequence]()
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(topic.logs)
            with suppress(SparklogError):
                if log not in sequences:
                    identity = await DataClient(cluster).init_producer_id(timeout_s=FEED_S)
                    sequences[log] = idempotent.Sequence(identity)
                batch = idempotent.begin(scene, log, name, values.some(), sequences[log])
                if not await idempotent.send_until_known(
                    scene, cluster, log, name, [batch], chance
                ):
                    del sequences[log]
            await scene.pause(chance, 500)


@dataclass(slots=True, kw_only=True)
class Seat:
    """A transactional id, and the processes that use it, of which one should."""

    transactional_id: str
    logs: list[LogId]
    old_share: float
    tasks: "dict[int, asyncio.Task[None]]" = field(default_factory=dict)
    lives: int = 0

    def client(self, place: int) -> str:
        return f"{self.transactional_id}-at-{place}"

    def running(self) -> list[int]:
        return [place for place, task in self.tasks.items() if not task.done()]


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    """Some transactional ids, and what happens to the processes that use them."""
    seats = [_seat(scene, f"{name}-{number}", chance) for number in range(chance.choice((2, 3, 3)))]
    scene.client_hosts += [f"client-{s.client(place)}" for s in seats for place in range(PLACES)]
    for seat in seats:
        _start(scene, seat, 0)
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        if not scene.over:
            await _trouble(scene, chance.choice(seats), chance)
    tasks = [task for seat in seats for task in seat.tasks.values()]
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


def _seat(scene: Scene, transactional_id: str, chance: random.Random) -> Seat:
    kind = chance.random()
    old_share = 1.0 if kind < OLD_SHARE else 0.0 if kind < OLD_SHARE + NEW_SHARE else 0.5
    logs = scene.transaction_logs
    return Seat(transactional_id=transactional_id, logs=logs, old_share=old_share)


def _start(scene: Scene, seat: Seat, place: int) -> None:
    seat.lives += 1
    name = seat.client(place)
    chance = scene.world.stream(f"{name} life {seat.lives}")
    seat.tasks[place] = scene.world.client(name).start(_live(scene, seat, name, chance))


async def _trouble(scene: Scene, seat: Seat, chance: random.Random) -> None:
    """A second instance beside the first, or the end or a pause of a process."""
    running = seat.running()
    free = [place for place in range(PLACES) if place not in running]
    what = chance.random()
    if not running:
        _start(scene, seat, chance.choice(free))
    elif what < 0.35 and free:
        scene.count("second_instances")
        _start(scene, seat, chance.choice(free))
    elif what < 0.7:
        place = chance.choice(running)
        scene.world.kill_client(seat.client(place))
        del seat.tasks[place]
        await scene.pause(chance, 1500)
        _start(scene, seat, place)
    else:
        await _pause(scene, seat, chance.choice(running), free, chance)


async def _pause(
    scene: Scene, seat: Seat, place: int, free: list[int], chance: random.Random
) -> None:
    """A process stands still; meanwhile another one takes its id, perhaps."""
    loop, node = scene.world.loop, scene.world.client(seat.client(place)).node
    scene.world.note(f"{node.name} is paused")
    scene.count("producer_pauses")
    loop.hold(node)
    if free and not scene.over:
        _start(scene, seat, free[0])
    await scene.pause(chance, 5000)
    scene.world.note(f"{node.name} goes on")
    loop.release(node)


async def _live(scene: Scene, seat: Seat, name: str, chance: random.Random) -> None:
    """Instance after instance, until another process has the transactional id."""
    values, lives = Values(f"{name}.{seat.lives}", chance), 0
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            lives += 1
            is_old = chance.random() < seat.old_share
            life = f"{name}.{seat.lives}.{lives}"
            instance = Instance(scene, cluster, seat.transactional_id, life, chance, is_old=is_old)
            if await instance.initialize():
                await _transact(scene, seat, instance, values, chance)
            if instance.is_fenced:
                if chance.random() < 0.6:
                    await scene.pause(chance, 1500)
                    await instance.haunt(chance.choice(seat.logs), values.next())
                if chance.random() < 0.5:
                    return
            elif chance.random() < 0.6:
                await instance.close()
            await scene.pause(chance, 1500)


async def _transact(
    scene: Scene, seat: Seat, instance: Instance, values: Values, chance: random.Random
) -> None:
    """Transaction after transaction, until the instance cannot go on or is given up."""
    for _ in range(chance.choice((2, 10, 40))):
        if scene.over or await _one(scene, seat, instance, values, chance) is None:
            return
        await scene.pause(chance, 150)


async def _one(
    scene: Scene, seat: Seat, instance: Instance, values: Values, chance: random.Random
) -> bool | None:
    """One transaction; None when the instance cannot go on."""
    logs = chance.sample(seat.logs, min(chance.choice((1, 2, 3, 4)), len(seat.logs)))
    commits = chance.random() < 0.75
    try:
        instance.begin()
    except KafkaError:
        return None
    with suppress(SparklogError):  # what is not sent lets the commit fail
        # Late requests of old clients find a transaction open that has more records to come.
        for _ in range(chance.choice((2, 2, 3) if instance.is_old else (1, 1, 2))):
            for log in logs:
                await instance.send(log, values.next())
            pause_ms = (50, 500, 1500) if instance.is_old else (0, 50, 50, 3000)
            await scene.pause(chance, chance.choice(pause_ms))
    if chance.random() < 0.07:
        return None  # it stays open
    return await instance.end(commits=commits)
