"""Looking at every single node, which clients do not let one do.

Nodes learn of a change one after the other, and a client asks any of them.
"""

import asyncio
import time
from collections.abc import Callable

from sparklog.client.connection import Connection
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.02


def await_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until every node knows so many partitions of a topic; 0: no topic."""
    asyncio.run(_await_topic(bootstrap, topic, partitions))


def eventually(look: Callable[[], object], expected: object) -> None:
    """Look until it is so; at the deadline, fail."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"{found} is not {expected}"
        time.sleep(PAUSE_SECONDS)


async def _await_topic(bootstrap: str, topic: str, partitions: int) -> None:
    host, _, port = bootstrap.rpartition(":")
    any_node = await _metadata(Endpoint(host, int(port)), topic)
    async with asyncio.timeout(SECONDS_MAX):
        for node in any_node.brokers:
            while _partitions(await _metadata(Endpoint(node.host, node.port), topic)) != partitions:
                await asyncio.sleep(PAUSE_SECONDS)


async def _metadata(endpoint: Endpoint, topic: str) -> MetadataResponse:
    connection = await Connection.open(endpoint, timeout_s=SECONDS_MAX)
    try:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        answer: MetadataResponse = await connection.request(request, timeout_s=SECONDS_MAX)
        return answer
    finally:
        connection.close()


def _partitions(metadata: MetadataResponse) -> int:
    [topic] = metadata.topics
    return sum(not partition.error_code for partition in topic.partitions)
