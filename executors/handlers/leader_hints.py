"""Leader hints: the current leader in a response with NOT_LEADER_OR_FOLLOWER (KIP-951).

Owns: which responses get a hint, and the hint.  Must not know the messages that carry hints.
"""

from dataclasses import dataclass

from sparklog.errors import ErrorCode
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.types import Endpoint, TopicPartition

_WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderHint:
    """The current leader of a partition, and where clients reach it."""

    node_id: int
    leader_epoch: int
    endpoint: Endpoint


def leader_hint(
    replica_manager: ReplicaManager, topic: str, number: int, code: int
) -> LeaderHint | None:
    """The leader in the image, if it is another broker and the error ``code`` calls for a hint."""
    if code not in _WRONG_LEADER:
        return None
    state = replica_manager.image.partition(TopicPartition(topic, number))
    if state is None or state.leader == replica_manager.node_id:
        return None
    broker = replica_manager.image.broker(state.leader)
    if broker is None or broker.fenced:
        return None
    return LeaderHint(
        node_id=state.leader, leader_epoch=state.leader_epoch, endpoint=broker.endpoint
    )
