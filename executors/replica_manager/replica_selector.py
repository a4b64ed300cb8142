"""Which replica a consumer should read from: one that stands where it stands (KIP-392).

Owns: the choice, Kafka's RackAwareReplicaSelector.  Must not know how replicas are read.
"""

from collections.abc import Iterable

from sparklog.metadata import ClusterImage
from sparklog.types import NO_NODE


def closest_replica(
    rack: str, leader_id: int, ends: Iterable[tuple[int, int]], image: ClusterImage
) -> int:
    """The follower in ``rack`` that has most, of those in ``ends`` (broker id and log end).

    NO_NODE when there is none, or when the leader is there itself.
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
