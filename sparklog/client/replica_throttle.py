"""Throttling of replica moves, so that clients keep their share of bandwidth (KIP-73).

Owns: the settings of topics and brokers that make a throttle, as Kafka's tools set them.  Must not
know how brokers apply a throttle.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sparklog.client.admin import Admin
from sparklog.types import CONTROLLER_NODE_ID, TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


def throttled_replicas(
    present: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]]
) -> dict[str, dict[str, str]]:
    """The throttle settings of each topic that a plan moves: sending and new replicas."""
    found: dict[str, dict[str, list[str]]] = {}
    for tp, replicas in sorted(plan.items()):
        new = [broker for broker in replicas if broker not in present.get(tp, ())]
        if new:
            of_topic = found.setdefault(tp.topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
            of_topic[LEADER_REPLICAS] += [f"{tp.partition}:{b}" for b in present.get(tp, ())]
            of_topic[FOLLOWER_REPLICAS] += [f"{tp.partition}:{broker}" for broker in new]
    return {
        topic: {name: ",".join(listed) for name, listed in of_topic.items()}
        for topic, of_topic in found.items()
    }


async def throttle(
    admin: Admin,
    present: Mapping[TopicPartition, Sequence[int]],
    plan: Mapping[TopicPartition, Sequence[int]],
    rate: int,
) -> None:
    """Throttle a plan's moves to a rate in bytes per second, by broker and direction."""
    for broker in sorted({b for each in (*present.values(), *plan.values()) for b in each}):
        await admin.alter_broker_configs(broker, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
    for topic, settings in throttled_replicas(present, plan).items():
        await admin.alter_topic_configs(topic, settings)


async def unthrottle(admin: Admin, topics: Iterable[str]) -> None:
    """Remove the throttles of these topics and of all brokers."""
    for topic in topics:
        await admin.alter_topic_configs(topic, {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None})
    for node in (await admin.describe_cluster()).nodes:
        if node.node_id != CONTROLLER_NODE_ID:
            await admin.alter_broker_configs(node.node_id, {LEADER_RATE: None, FOLLOWER_RATE: None})
