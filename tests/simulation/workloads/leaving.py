"""A tiered topic that leaves the bucket, and comes back.

Owns: when, and what an answer says.  Must not know how it is checked.

Only a topic whose records may go does so: where its log starts afterwards is known to its leader.
"""

import random

from sparklog.client.admin import Admin
from sparklog.errors import SparklogError
from tests.simulation.workloads.scene import Scene, Topic

TIMEOUT_S = 5.0
#: Longest pause before a topic leaves, and before it comes back, in milliseconds of virtual time.
PAUSE_MS = 4000
OFF = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
ON = {"remote.storage.enable": "true"}


def leaving_topics(scene: Scene) -> list[Topic]:
    """The topics that may leave."""
    return [
        topic
        for topic in scene.topics
        if {"remote.storage.enable", "retention.bytes"} <= topic.configs.keys()
    ]


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    async with await scene.world.cluster_client(name) as cluster:
        admin = Admin(cluster, timeout_s=TIMEOUT_S)
        while not scene.over:
            await scene.pause(chance, PAUSE_MS)
            topic, configs = chance.choice(leaving_topics(scene)), chance.choice((OFF, OFF, ON))
            try:
                await admin.alter_topic_configs(topic.name, configs)
            except SparklogError:
                cluster.expire_topics()
            else:
                scene.world.note(
                    f"{topic.name} {'leaves' if configs is OFF else 'uses'} the bucket"
                )
                scene.count("tier_switches")
