"""Settings of topics, changed while they are in use.

Owns: which settings, and what an answer says.  Must not know how it is checked.
"""

import random

from sparklog.client.admin import Admin
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from tests.simulation.events import ConfigChangeEnded, ConfigChangeInvoked
from tests.simulation.workloads.scene import Scene, Topic

TIMEOUT_S = 5.0
#: What any topic takes; None takes the override away.
VALUES: dict[str, tuple[str | None, ...]] = {
    "segment.bytes": ("1500", "4000", "20000", None),
    "index.interval.bytes": ("50", "200", "4096"),
    "max.message.bytes": ("300", "1048588", None),
    "segment.ms": ("500", "604800000"),
    "file.delete.delay.ms": ("0", "1000", "60000"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
#: What a topic takes that promises no flush.
UNPROMISED: dict[str, tuple[str | None, ...]] = {
    "flush.messages": ("1", "4", None),
    "flush.ms": ("0", "100", None),
}
#: What a topic takes that has several replicas.
REPLICATED: dict[str, tuple[str | None, ...]] = {
    "min.insync.replicas": ("1", "2", "2", None),
}
#: What a topic takes whose records may go.
RETAINED: dict[str, tuple[str | None, ...]] = {
    "retention.bytes": ("3000", "20000", "-1"),
    "retention.ms": ("1000", "604800000"),
}


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    async with await scene.world.cluster_client(name) as cluster:
        admin = Admin(cluster, timeout_s=TIMEOUT_S)
        while not scene.over:
            await _change(scene, admin, chance.choice(scene.topics), chance)
            await scene.pause(chance, 1500)


async def _change(scene: Scene, admin: Admin, topic: Topic, chance: random.Random) -> None:
    replica_manager = dict(VALUES)
    if "flush.messages" not in topic.configs:
        replica_manager |= UNPROMISED
    if "retention.bytes" in topic.configs:
        replica_manager |= RETAINED
    if topic.replication_factor > 1:
        replica_manager |= REPLICATED
    setting = chance.choice(list(replica_manager))
    await change(scene, admin, topic, setting, chance.choice(replica_manager[setting]))


async def change(scene: Scene, admin: Admin, topic: Topic, setting: str, value: str | None) -> None:
    """Change one setting, or try to."""
    op = scene.history.new_op()
    scene.history.record(
        ConfigChangeInvoked(
            op=op, topic=topic.name, topic_id=topic.topic_id, name=setting, value=value
        )
    )
    try:
        await admin.alter_topic_configs(topic.name, {setting: value})
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_CONFIG:
            scene.history.record(ConfigChangeEnded(op=op, changed=False))
    except SparklogError:
        return
    else:
        scene.history.record(ConfigChangeEnded(op=op, changed=True))
        scene.count("config_changes")
