"""Topics: created, used for a while, deleted, and created again under the same name.

Owns: how a client learns for sure that a topic is there, or gone.  Must not know how it is checked.
"""

import random
from contextlib import suppress
from uuid import UUID

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import TopicView
from sparklog.client.deadline import Deadline
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from tests.simulation.events import (
    TopicCreated,
    TopicCreateInvoked,
    TopicDeleted,
    TopicDeleteInvoked,
    TopicSeen,
)
from tests.simulation.workloads.consume import Place, read
from tests.simulation.workloads.produce import send_together
from tests.simulation.workloads.scene import Scene, Topic, Values

TIMEOUT_S = 5.0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    """Two names in turn, so that each comes back."""
    values = Values(name, chance)
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            topic_name = f"{name}-{chance.choice('ab')}"
            configs = {"flush.messages": "1"} if chance.random() < 0.5 else {}
            partitions, factor = chance.randint(1, 2), scene.some_factor(chance)
            topic = await create(scene, cluster, topic_name, partitions, configs, chance, factor)
            if topic is None:
                return
            scene.passing[topic_name] = topic
            for _ in range(chance.randint(0, 3)):
                log = chance.choice(topic.logs)
                requests = [{log: values.some()} for _ in range(2)]
                await send_together(scene, cluster, log, name, requests, chance)
                await _read(scene, cluster, name, topic, chance)
                await scene.pause(chance, 300)
            del scene.passing[topic_name]
            if not await delete(scene, cluster, topic, chance):
                return
            await scene.pause(chance, 600)


async def _read(
    scene: Scene, cluster: ClusterClient, name: str, topic: Topic, chance: random.Random
) -> None:
    try:
        await read(scene, cluster, name, chance.choice(topic.logs), Place(), chance)
    except SparklogError:
        cluster.expire_topics()


async def create(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    partitions: int,
    configs: dict[str, str],
    chance: random.Random,
    replication_factor: int = 1,
) -> Topic | None:
    """Ask until the topic is there; None when the run is over before."""
    op, history = scene.history.new_op(), scene.history
    former = {e.topic_id for _, e in history.each(TopicDeleteInvoked) if e.topic == name}
    settings = tuple(configs.items())
    history.record(TopicCreateInvoked(op=op, topic=name, configs=settings, partitions=partitions))
    while not scene.over:
        with suppress(SparklogError):  # what came of it is in the metadata
            await Admin(cluster, timeout_s=TIMEOUT_S).create_topic(
                name, partitions, replication_factor=replication_factor, configs=configs
            )
        found = await _find(scene, cluster, name, former)
        if found is not None and found.topic_id is not None:
            leaders = tuple(p.leader for _, p in sorted(found.partitions.items()))
            history.record(
                TopicCreated(op=op, topic=name, topic_id=found.topic_id, leaders=leaders)
            )
            scene.count("topics_created")
            return Topic(
                name=name,
                topic_id=found.topic_id,
                configs=configs,
                leaders=leaders,
                replication_factor=replication_factor,
            )
        await scene.pause(chance, 500)
    return None


async def _find(
    scene: Scene, cluster: ClusterClient, name: str, former: set[UUID]
) -> TopicView | None:
    """The topic with all its leaders; brokers may still know one that is deleted."""
    try:
        view = await cluster.refresh((name,), Deadline(TIMEOUT_S))
        found = view.topic(name)
    except SparklogError:
        return None
    assert found.topic_id is not None
    scene.history.record(
        TopicSeen(topic=name, topic_id=found.topic_id, partitions=len(found.partitions))
    )
    led = all(partition.leader > 0 for partition in found.partitions.values())
    return found if led and found.topic_id not in former else None


async def delete(scene: Scene, cluster: ClusterClient, topic: Topic, chance: random.Random) -> bool:
    """Ask until it is acknowledged; False when the run is over before."""
    op, history = scene.history.new_op(), scene.history
    history.record(TopicDeleteInvoked(op=op, topic=topic.name, topic_id=topic.topic_id))
    while not scene.over:
        try:
            await Admin(cluster, timeout_s=TIMEOUT_S).delete_topics([topic.name])
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True  # an attempt without an answer did it, as far as can be told
        except SparklogError:
            pass
        else:
            history.record(TopicDeleted(op=op))
            scene.count("topics_deleted")
            return True
        await scene.pause(chance, 500)
    return False
