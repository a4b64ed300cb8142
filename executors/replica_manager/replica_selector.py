"""The preferred read replica of a consumer: a replica in the consumer's rack (KIP-392).

Owns: the choice, Kafka's RackAwareReplicaSelector.  Must not know how replicas are read.
"""

from collections.abc import Iterable

from sparklog.metadata import ClusterImage
from sparklog.types import NO_NODE


def closest_replica(
    rack: str, leader_id: int, ends: Iterable[tuple[int, int]], image: ClusterImage
) -> int:
    """The follower in ``rack`` with the highest log end.  ``ends`` has broker ids and log ends.

    NO_NODE when the rack has no such follower, or has the leader itself.
    """
    leader = image.broker(leader_id)
    if leader is not None and leader.place == rack:
        return NO_NODE
    best, best_end = NO_NODE, -1
    for broker_id, end in ends:
        broker = image.broker(broker_id)
        if broker is None or not image.is_alive(broker_id) or broker.place != rack:
            continue
        if end > best_end:
            best, best_end = broker_id, end
    return best
