"""Tiered partitions of which every replica loses its directory: only the bucket has records left.

Owns: when, and the operator who gives up what is in no bucket.  Must not know what may be lost by
it.
"""

import random

from sparklog.remote_log import names
from tests.simulation.checkers.copies import Copies, follow
from tests.simulation.events import LogId
from tests.simulation.history import NEVER
from tests.simulation.workloads import losing
from tests.simulation.workloads.ending import ask_unclean, is_gone
from tests.simulation.workloads.nemesis import bring_back
from tests.simulation.workloads.scene import Scene

#: Longest pauses between two losses, and until an operator is there, in milliseconds.
CALM_MS = 7000
TROUBLE_MS = 2000
#: How often the operator asks for a leader.
ATTEMPTS_MAX = 5
#: How often a topic of transactions is chosen, if it may.
TRANSACTIONAL_SHARE = 0.7


async def run(scene: Scene, chance: random.Random) -> None:
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        # The brokers that are killed may have the last copy of another partition.
        if not scene.over and not losing.is_loss_open(scene):
            await wipe(scene, chance)


async def wipe(scene: Scene, chance: random.Random) -> None:
    """One partition, on all of its brokers at once; they come back, and one of them leads."""
    candidates = sorted(_candidates(scene), key=lambda copies: str(copies.log))
    transactional = [each for each in candidates if scene.is_transactional(each.log)]
    if transactional and chance.random() < TRANSACTIONAL_SHARE:
        candidates = transactional
    if not candidates:
        return
    copies = chance.choice(candidates)
    log, brokers = copies.log, sorted(copies.holders | set(copies.state.replicas))
    scene.world.note(f"all replicas of {log} are lost")
    scene.count("wiped_partitions")
    for broker_id in brokers:
        if scene.world.is_up(broker_id):
            await scene.world.kill_broker(broker_id)
            scene.count("crashes")
    for broker_id in brokers:
        losing.lose(scene, copies, broker_id, chance, whole=True)
    await scene.pause(chance, TROUBLE_MS)
    for broker_id in brokers:
        await bring_back(scene, broker_id)
    async with await scene.world.cluster_client("operator") as cluster:
        for _ in range(ATTEMPTS_MAX):
            await scene.pause(chance, TROUBLE_MS)
            if not is_gone(scene, log):
                break
            await ask_unclean(scene, cluster, log)


def _candidates(scene: Scene) -> list[Copies]:
    """Partitions with records in the bucket, of which some replica is left.

    What an only replica held is given up with a setting of its broker (``lost.logs.accept``).
    """
    return [
        copies
        for copies in follow(scene.history).values()
        if copies.deleted_at == NEVER
        and scene.is_tiered(copies.log)
        and len(copies.state.replicas) > 1
        and copies.log not in scene.moving
        and _is_copied(scene, copies.log)
        and all(losing.has_directory(scene, copies, b) for b in copies.holders - copies.emptied)
        and not is_gone(scene, copies.log)
    ]


def _is_copied(scene: Scene, log: LogId) -> bool:
    assert scene.world.bucket is not None
    folder = names.segments_folder(log.topic_id, log.partition)
    return any(path.startswith(f"{folder}/") for path in scene.world.bucket.objects())
