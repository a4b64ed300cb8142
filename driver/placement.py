"""On which brokers the replicas of new partitions go.

Owns: the choice, and its balance.  Must not know topics, requests or how the choice is recorded.

Each partition goes to the broker that has the fewest of this request's partitions, then the fewest
leaders overall, then the lowest id: the partitions of one topic spread evenly, and many small
topics do too.
"""

import heapq
from collections.abc import Mapping

#: The replicas of one partition; the first leads.
Replicas = tuple[int, ...]


def place(partitions: int, load: Mapping[int, int]) -> tuple[Replicas, ...]:
    """Replicas of ``partitions`` new partitions, one replica each.

    ``load`` gives, for every broker that may be chosen, the number of partitions it leads.
    """
    assert load, "the caller refuses to place without brokers"
    heap = [(0, leaders, broker_id) for broker_id, leaders in load.items()]
    heapq.heapify(heap)
    placed: list[Replicas] = []
    for _ in range(partitions):
        given, leaders, broker_id = heap[0]
        heapq.heapreplace(heap, (given + 1, leaders + 1, broker_id))
        placed.append((broker_id,))
    return tuple(placed)
