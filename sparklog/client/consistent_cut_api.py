"""Consistent cuts: last stable offsets of many partitions at which no transaction is torn.

Owns: one attempt at a cut, and which clusters have cuts.  Must not know what the offsets are for.
"""

from collections.abc import Iterable

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check
from sparklog.types import CONTROLLER_NODE_ID, TopicPartition, numbers_by_topic
from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ConsistentCutResponse,
    CutTopic,
)

#: Time for the response in addition to the wait of the cut itself, in seconds.
_ANSWER_GRACE_S = 1.0


async def consistent_cut(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    *,
    max_wait_ms: int,
    deadline: Deadline,
) -> dict[TopicPartition, int] | None:
    """The last stable offsets of a cut; None if the cluster has no cuts, as Kafka.

    The view of ``cluster`` must have the nodes of the cluster.  Node 0 holds transactions back for
    at most ``max_wait_ms``.  The client waits for the response a little longer, also beyond the
    deadline, because a response that comes too late costs it the connection.

    Raises:
        KafkaError: why there is no cut, such as CONCURRENT_TRANSACTIONS, REQUEST_TIMED_OUT and
            COORDINATOR_LOAD_IN_PROGRESS.
        ConnectError: node 0 does not respond.
    """
    if cluster.view.controller_id != CONTROLLER_NODE_ID:
        return None
    connection = await cluster.connect_node(CONTROLLER_NODE_ID, deadline)
    if ConsistentCutRequest.API_KEY not in connection.versions:
        return None
    request = ConsistentCutRequest(
        max_wait_ms=max_wait_ms,
        topics=tuple(
            CutTopic(name=name, partitions=numbers)
            for name, numbers in numbers_by_topic(partitions).items()
        ),
    )
    response: ConsistentCutResponse = await connection.request(
        request, timeout_s=max_wait_ms / 1000 + _ANSWER_GRACE_S
    )
    check(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, part.partition): part.last_stable_offset
        for topic in response.topics
        for part in topic.partitions
    }
