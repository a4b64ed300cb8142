"""Readers that take consistent cuts over several partitions, as a DataFrame does.

Owns: which partitions a cut has, and the broker whose offset comes late.  Must not know what a cut
ought to show.
"""

import random

from sparklog.client.consistent_cut_api import consistent_cut
from sparklog.client.deadline import Deadline
from sparklog.errors import SparklogError
from tests.simulation.transaction_events import CutTaken
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

TIMEOUT_S = 4.0
#: How late what the control plane asks of one broker arrives, and how long after the beginning of a
#: cut that is so, in seconds.  Markers that are sent after that are fast.
SLOW_S = (0.05, 0.8)
MOMENT_S = 0.005


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    logs = scene.transaction_logs
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            await scene.pause(chance, 150)
            wanted = {tp_of(log): log for log in chance.sample(logs, chance.randint(2, len(logs)))}
            try:
                deadline = Deadline(TIMEOUT_S)
                await cluster.refresh((), deadline)
                if chance.random() < 0.7:
                    _delay_offsets(scene, chance)
                wait_ms = chance.choice((200, 1000, 2000))
                found = await consistent_cut(
                    cluster, wanted, max_wait_ms=wait_ms, deadline=deadline
                )
            except SparklogError:
                scene.count("cuts_refused")
                continue
            assert found is not None, "the cluster has cuts"
            scene.count("cuts_taken")
            ends = tuple((wanted[tp], offset) for tp, offset in found.items())
            scene.history.record(CutTaken(reader=name, ends=ends))


def _delay_offsets(scene: Scene, chance: random.Random) -> None:
    """The offsets of one broker come late, while transactions are committed."""
    broker = chance.choice([host.name for host in scene.world.brokers.values()])
    network, loop = scene.world.network, scene.world.loop
    network.slow("control", broker, *SLOW_S)
    context = loop.outside.context.copy()
    loop.call_later(MOMENT_S, network.hasten, "control", broker, context=context)
