"""What goes wrong in the network: links that are cut, slow or broken.

Owns: which links, and their end at the latest when the run is over.  Must not know who suffers.
"""

import random
from collections.abc import Collection

from tests.simulation.workloads.scene import Scene

#: Longest pauses between troubles, and longest troubles, in milliseconds of virtual time.
CALM_MS = 3000
TROUBLE_MS = 8000


async def network(scene: Scene, chance: random.Random) -> None:
    """Between two hosts, between one and some or all others, or through the middle."""
    world = scene.world
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        brokers = [host.name for host in world.brokers.values()]
        servers = ["control", *brokers]
        one = chance.choice(servers)
        other = chance.choice([name for name in [*servers, *scene.client_hosts] if name != one])
        what = chance.randrange(11)
        if what == 0:
            world.partition_network(one, other)
        elif what == 1:
            world.partition_network(one, other, one_way=True)
        elif what == 2:
            world.slow_network(one, other, 0.01, chance.choice((0.05, 0.5)))
        elif what == 3:
            _cut_off(scene, chance.choice(brokers), ["control"])
        elif what == 4:
            _cut_off(scene, chance.choice(brokers), brokers)
        elif what == 5:
            _cut_off(scene, chance.choice(brokers), [*servers, *scene.client_hosts])
        elif what in (7, 8):  # clients go on with a leader that is replaced, unknown to both
            _cut_off(scene, chance.choice(brokers), servers)
        elif what == 6:
            half = chance.sample(servers, len(servers) // 2)
            for name in half:
                _cut_off(scene, name, [server for server in servers if server not in half])
        else:
            world.reset_connections(one, other)
            scene.count("network_resets")
            continue
        await scene.pause(chance, TROUBLE_MS)
        world.heal_network()


def _cut_off(scene: Scene, one: str, others: Collection[str]) -> None:
    for other in others:
        if other != one:
            scene.world.partition_network(one, other)
    scene.count("cut_off")
