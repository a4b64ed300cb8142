"""Replicas that end just when their leader has asked for their return to the ISR (KIP-903).

Owns: how that is brought about: the leader's question is slow, the replica loses power and is back
with less, and cannot copy it again, before the controller hears of it.  Must not know what the
controller makes of it.
"""

import asyncio
import random
from contextlib import suppress

from sparklog.errors import SparklogError
from sparklog.executors.partition.partition import Partition
from sparklog.types import NO_NODE
from tests.simulation.events import LogId
from tests.simulation.hosts import Loss
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.nemesis import bring_back
from tests.simulation.workloads.scaling import report_broker_death
from tests.simulation.workloads.scene import Scene

CALM_MS = 2000
#: How long a question takes on its way, in seconds.
SLOW_S = (0.3, 0.6)
LOOK_S = 0.01
#: How long it is waited for, and what came of it is left alone, in seconds.
PATIENCE_S = 4.0
AFTERMATH_S = 1.0


async def run(scene: Scene, chance: random.Random) -> None:
    logs = [log for t in scene.topics if t.replication_factor > 1 for log in t.logs]
    while logs and not scene.over:
        await scene.pause(chance, CALM_MS)
        log = chance.choice(logs)
        leader = scene.leader(log)
        led = _led(scene, log, leader)
        others = [b for b in led.state.isr if b != leader] if led and led.state else []
        others = [broker_id for broker_id in others if scene.world.is_up(broker_id)]
        if scene.over or not others:
            continue
        await _rejoin(scene, log, leader, chance.choice(others))
        scene.world.heal_network()


async def _rejoin(scene: Scene, log: LogId, leader: int, follower: int) -> None:
    world = scene.world
    one, another = world.brokers[leader].name, world.brokers[follower].name
    await _kill(scene, follower, Loss.NOTHING)
    with suppress(SparklogError):
        await report_broker_death(scene, follower)
    world.slow_network(one, "control", *SLOW_S)
    await bring_back(scene, follower)
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if scene.over or not world.is_up(follower):
            return
        if _is_asked_for(scene, log, leader, follower):
            break
        await asyncio.sleep(LOOK_S)
    else:
        return
    world.partition_network(one, another)
    await _kill(scene, follower, Loss.UNFLUSHED)
    scene.count("rejoins_overtaken")
    await bring_back(scene, follower)
    await asyncio.sleep(AFTERMATH_S)


async def _kill(scene: Scene, broker_id: int, loss: Loss) -> None:
    await scene.world.kill_broker(broker_id, loss)
    scene.count("crashes")


def _is_asked_for(scene: Scene, log: LogId, leader: int, follower: int) -> bool:
    led = _led(scene, log, leader)
    proposal = led.isr_proposal() if led is not None and led.is_leader else None
    members = [broker_id for broker_id, _ in proposal.isr] if proposal is not None else []
    return follower in members


def _led(scene: Scene, log: LogId, leader: int) -> Partition | None:
    broker = scene.world.brokers[leader].broker if leader != NO_NODE else None
    return broker.replica_manager.get(tp_of(log)) if broker is not None else None
