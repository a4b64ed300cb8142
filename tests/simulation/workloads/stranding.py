"""Leaders of topics with unclean elections: they go on alone, are killed, and others lead.

Owns: how that is brought about.  Must not know what may be lost by it.
"""

import random
from contextlib import suppress

from sparklog.errors import SparklogError
from sparklog.types import NO_NODE
from tests.simulation.hosts import Loss
from tests.simulation.workloads.nemesis import bring_back
from tests.simulation.workloads.scaling import report_broker_death
from tests.simulation.workloads.scene import Scene

CALM_MS = 2500
TROUBLE_MS = 2500


async def run(scene: Scene, chance: random.Random) -> None:
    """Cut one off from all other brokers until they are out of sync, then end it."""
    logs = [log for t in scene.topics if t.unclean and t.replication_factor > 1 for log in t.logs]
    lag_ms = int(scene.world.settings["replica.lag.time.max.ms"])
    while logs and not scene.over:
        await scene.pause(chance, CALM_MS)
        leader = scene.leader(chance.choice(logs))
        if scene.over or leader == NO_NODE or not scene.world.is_up(leader):
            continue
        for other in scene.world.brokers:
            if other != leader:
                one, another = scene.world.brokers[leader].name, scene.world.brokers[other].name
                scene.world.partition_network(one, another)
        await scene.world.sleep(lag_ms * chance.uniform(1.5, 2.0) / 1000)
        await scene.world.kill_broker(leader, chance.choice((Loss.NOTHING, Loss.UNFLUSHED)))
        scene.count("crashes")
        with suppress(SparklogError):
            await report_broker_death(scene, leader)
        await scene.pause(chance, TROUBLE_MS)
        scene.world.heal_network()
        await bring_back(scene, leader)
