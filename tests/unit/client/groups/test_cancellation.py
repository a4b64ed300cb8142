"""A cancelled call ends, whatever happens at the same moment.

``asyncio.wait_for`` of Python 3.11 returns a result that is there, and forgets the cancellation.
"""

import asyncio
from collections.abc import Awaitable, Callable

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.groups import AsyncConsumer
from sparklog.types import Endpoint
from tests.unit.client.groups.group_cluster import GroupCluster
from tests.unit.client.small_cluster import run_cluster

#: The number of turns of the loop between an event and the cancellation.
TURNS_MAX = 8


async def ends_when_cancelled(
    endless: Callable[[], Awaitable[None]], turns: int, event: Callable[[], None] = lambda: None
) -> bool:
    task = asyncio.ensure_future(endless())
    await asyncio.sleep(0)
    event()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=2)
    ended = task.cancelled()
    task.cancel()
    return ended


def test_a_call_that_uses_an_open_connection() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        endpoint = Endpoint.parse(cluster.bootstrap)

        async def connect_and_wait() -> None:
            await client.connect(endpoint, Deadline(20))
            await asyncio.Event().wait()

        await client.connect(endpoint, Deadline(20))
        for turns in range(TURNS_MAX):
            assert await ends_when_cancelled(connect_and_wait, turns), turns

    run_cluster(test, kind=GroupCluster, auto_create=False)


def test_a_poll_that_is_woken_up() -> None:
    async def test(_cluster: GroupCluster, client: ClusterClient) -> None:
        async with AsyncConsumer(client, group_id="g") as consumer:
            consumer.subscribe(["none"])
            await consumer.poll(0.2)

            async def poll_for_ever() -> None:
                while True:
                    await consumer.poll(20)

            for turns in range(TURNS_MAX):
                ended = await ends_when_cancelled(poll_for_ever, turns, consumer.wakeup)
                assert ended, turns

    run_cluster(test, kind=GroupCluster, auto_create=False)
