"""Requests of transactional clients that arrive when their clients have long gone on.

Owns: which links are slow for a moment.  What a client sends in that moment arrives late, while it
repeats the request on another connection.  Must not know what a client sends.
"""

import asyncio
import random

from tests.simulation.actors import current_node
from tests.simulation.workloads.scene import Scene

CALM_MS = 600
#: How long a link is slow, and how late what is sent then arrives, in seconds.
MOMENT_S = (0.02, 0.2)
LATE_S = (0.5, 2.5)
#: A moment in which one request is sent.
REQUEST_S = 0.000_5
_CLIENTS = ("client-transactional", "client-chain-member")


async def run(scene: Scene, chance: random.Random) -> None:
    """Slow links to the transaction coordinator mostly, and to brokers."""
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        clients = [host for host in scene.client_hosts if host.startswith(_CLIENTS)]
        if scene.over or not clients:
            continue
        brokers = [host.name for host in scene.world.brokers.values()]
        server = "control" if chance.random() < 0.5 else chance.choice(brokers)
        client = chance.choice(clients)
        scene.world.network.slow(client, server, *LATE_S)
        await asyncio.sleep(chance.uniform(*MOMENT_S))
        scene.world.network.hasten(client, server)
        scene.count("late_moments")


def delay_next_request(scene: Scene) -> None:
    """What this client sends to the transaction coordinator now, and only now, is late."""
    node, network, loop = current_node(), scene.world.network, scene.world.loop
    assert node is not None, "a client"
    network.slow(node.host, "control", *LATE_S)
    context = loop.outside.context.copy()
    loop.call_later(REQUEST_S, network.hasten, node.host, "control", context=context)
    scene.count("late_requests")
