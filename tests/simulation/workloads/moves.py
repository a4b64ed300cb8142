"""What operators do to replicas while all else goes on: moves, elections, and broken-off moves.

Owns: which replicas a partition is to have.  Must not know how they get there.
"""

import random

from sparklog.client.admin import Admin
from sparklog.errors import SparklogError
from sparklog.types import ElectionType
from tests.simulation.events import LogId
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.losing import is_loss_open
from tests.simulation.workloads.scene import Scene

CALM_MS = 3000
TIMEOUT_S = 5.0


async def run(scene: Scene, chance: random.Random) -> None:
    await scene.world.client("mover").run(_move(scene, chance))


async def _move(scene: Scene, chance: random.Random) -> None:
    async with await scene.world.cluster_client("mover") as cluster:
        admin = Admin(cluster, timeout_s=TIMEOUT_S)
        while not scene.over:
            await scene.pause(chance, CALM_MS)
            log = chance.choice(scene.logs + scene.compacted_logs)
            try:
                await _do(scene, admin, log, chance)
            except SparklogError:
                cluster.expire_topics()


async def _do(scene: Scene, admin: Admin, log: LogId, chance: random.Random) -> None:
    tp, what = tp_of(log), chance.random()
    if what < 0.25:
        await admin.replicas.elect_leaders([tp], ElectionType.PREFERRED)
    elif what < 0.4:
        await admin.replicas.reassign({tp: None})
    else:
        brokers = list(scene.world.brokers)
        topics = scene.topics + scene.compacted
        (topic,) = [topic for topic in topics if topic.topic_id == log.topic_id]
        if is_loss_open(scene):
            return
        count = topic.replication_factor if chance.random() < 0.8 else chance.choice((1, 2, 3))
        targets = tuple(chance.sample(brokers, min(count, len(brokers))))
        scene.moving.add(log)  # perhaps for long, when the answer is lost
        await admin.replicas.reassign({tp: targets})
        scene.moving.discard(log)
    scene.count("moves_asked")
