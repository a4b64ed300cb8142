"""A reader that asks for the first record since a time, which may be in either tier.

Owns: which times are asked for, and what is written down of an answer.  Must not know how it is
checked.
"""

import random

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.errors import SparklogError
from tests.simulation.compaction_events import TimeLookedUp
from tests.simulation.events import LogId
from tests.simulation.workloads.consume import still_meant, tp_of
from tests.simulation.workloads.scene import Scene
from tests.simulation.world import EPOCH_MS

TIMEOUT_S = 4.0
#: Longest pause between two questions, in milliseconds of virtual time.
PAUSE_MS = 150


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(
                [each for each in scene.logs if scene.is_tiered(each)] or scene.logs
            )
            try:
                await _look_up(scene, cluster, log, chance)
            except SparklogError:
                cluster.expire_topics()
            await scene.pause(chance, PAUSE_MS)


async def _look_up(scene: Scene, cluster: ClusterClient, log: LogId, chance: random.Random) -> None:
    """Raises SparklogError."""
    tp, timestamp = tp_of(log), chance.randint(EPOCH_MS, scene.wall_ms)
    await cluster.topic(log.topic, Deadline(TIMEOUT_S))
    asked = scene.history.position
    found = await DataClient(cluster).list_offsets({tp: timestamp}, timeout_s=TIMEOUT_S)
    # A leader answers only those who know its epoch.
    leader = cluster.view.leader(tp)
    if leader is None or not still_meant(cluster, log):
        return
    scene.count("tiered_times_looked_up")
    scene.history.record(
        TimeLookedUp(
            asked=asked,
            log=log,
            timestamp=timestamp,
            offset=found[tp].offset,
            found_timestamp=found[tp].timestamp,
            leader_epoch=leader.leader_epoch,
        )
    )
