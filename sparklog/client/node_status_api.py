"""The counters of nodes: how they are asked for, and which clusters have them.

Owns: the requests and their answers as values.  Must not know what a counter means.
"""

import asyncio
import json
from collections.abc import Mapping

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.wire.protocol.private import NodeStatusRequest, NodeStatusResponse


async def node_counters(
    cluster: ClusterClient, deadline: Deadline, seconds: float
) -> dict[int, Mapping[str, int]]:
    """The counters of each node by node id; empty for a node that does not answer in ``seconds``.

    Raises:
        KafkaError: UNSUPPORTED_VERSION, because the nodes are not sparklog's.
    """
    view = await cluster.refresh((), deadline)
    wanted = sorted(view.nodes)
    found = await asyncio.gather(
        *(_counters(cluster, node_id, deadline.capped(seconds)) for node_id in wanted)
    )
    return dict(zip(wanted, found, strict=True))


async def _counters(cluster: ClusterClient, node_id: int, deadline: Deadline) -> Mapping[str, int]:
    response: NodeStatusResponse | None = None
    try:
        connection = await cluster.connect_node(node_id, deadline)
        if NodeStatusRequest.API_KEY in connection.versions:
            response = await connection.request(
                NodeStatusRequest(), timeout_s=max(deadline.left_s, 0.001)
            )
    except (ConnectError, KafkaError):
        return {}
    if response is None:
        reason = f"node {node_id} does not tell its counters; only nodes of sparklog do"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    check(response.error_code, response.error_message)
    counters: dict[str, int] = json.loads(response.status)
    return counters
