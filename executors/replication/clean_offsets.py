"""How far all replicas of a partition have been compacted, which decides when tombstones may go.

Owns: the requests to the other replicas.  Must not know what is cleaned.

A replica that drops a tombstone leaves a gap in its place.  Another replica that copies the gap
never learns that the key was deleted: if it holds an older value of the key, the value comes back
when that replica leads.  So a tombstone goes only when every replica has been compacted beyond its
offset, durably.  None of them has an older value then, and a new replica copies from one of them.
Markers of transactions go by the same rule.  A replica that is away, or whose cleaner is off or
fails, keeps the tombstones and markers of all replicas.

Kafka drops a tombstone by time alone, and relies on absent replicas to come back within
``delete.retention.ms``.

Two limits.  First: suppose that a replica is removed from a broker that is away, and is assigned to
the same broker again before the broker returns.  Then the replica goes on with its old log.
Second: suppose that a new replica changes its leader while it copies the log.  It may copy a
transaction's data from the first leader, while the second leader has compacted both data and
marker.  Then the transaction stays open in the new replica until a tool aborts it.
"""

import asyncio
from typing import Final

from sparklog.executors.partition import Partition
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.executors.replication.replica_questions import NO_ANSWER, ask_once
from sparklog.types import MAX_INT64
from sparklog.wire.protocol.private_replicas import ReadCleanOffsetRequest, ReadCleanOffsetResponse

#: The clean offset of a replica that gives no answer: its log may hold older values anywhere.
_UNKNOWN: Final = 0


class CleanOffsets:
    """Asks the other replicas of a broker's partitions."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools

    async def lowest(self, partition: Partition) -> int:
        """The offset below which all other replicas are clean.

        Returns 0 if a replica cannot tell, and MAX_INT64 for the only replica.
        """
        state = partition.state
        if state is None:
            return _UNKNOWN
        others = [broker_id for broker_id in state.replicas if broker_id != partition.node_id]
        image = self._tools.replica_manager.image
        if not all(image.is_alive(broker_id) for broker_id in others):
            return _UNKNOWN
        answers = await asyncio.gather(
            *(self._ask(broker_id, partition, state.partition_epoch) for broker_id in others)
        )
        if partition.state is None or set(partition.state.replicas) != set(state.replicas):
            return _UNKNOWN
        return min(answers, default=MAX_INT64)

    async def _ask(self, broker_id: int, partition: Partition, partition_epoch: int) -> int:
        broker = self._tools.broker(broker_id)
        if broker is None or not broker.registered:
            return _UNKNOWN
        request = ReadCleanOffsetRequest(
            topic_id=partition.topic_id, partition=partition.topic_partition.partition
        )
        try:
            answer = await ask_once(self._tools, broker.endpoint, request)
        except NO_ANSWER:
            return _UNKNOWN
        assert isinstance(answer, ReadCleanOffsetResponse)
        if answer.error_code or answer.partition_epoch > partition_epoch:
            return _UNKNOWN  # that replica may know of a replica that is not known here yet
        return max(answer.clean_offset, _UNKNOWN)
