"""A node with a dispatcher on a loopback socket, and raw requests to it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from sparklog.client.connection import Connection
from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ClusterImage,
    ControllerChanged,
    PartitionImage,
    TopicCreated,
)
from sparklog.service.dispatch import ApiHandler, Dispatcher
from sparklog.transport import Server, serve
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.schema import Request, Response

HOST = "127.0.0.1"
FLIGHTS = UUID(int=0xF1)
HALF = UUID(int=0xA1F)


def image() -> ClusterImage:
    """Brokers 1 and 2 are alive, 3 is fenced; one of the 2 partitions of ``half`` is leaderless."""
    cluster = ClusterImage()
    cluster.replay(ClusterCreated(cluster_id="c1", created_ms=0))
    cluster.replay(ControllerChanged(controller_epoch=1, host="control", port=9000))
    for number in (1, 2, 3):
        cluster.replay(
            BrokerRegistered(
                broker=BrokerImage(
                    broker_id=number,
                    directory_id=UUID(int=number),
                    broker_epoch=number,
                    host=f"host{number}",
                    port=9000 + number,
                ),
                clean=True,
            )
        )
    cluster.replay(BrokerUnfenced(broker_id=1))
    cluster.replay(BrokerUnfenced(broker_id=2))
    led = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1, leader_epoch=4)
    lost = PartitionImage(replicas=(3,), isr=(), last_known=(3,), leader=-1, leader_epoch=2)
    cluster.replay(TopicCreated(topic="flights", topic_id=FLIGHTS, partitions=(led,)))
    cluster.replay(TopicCreated(topic="half", topic_id=HALF, partitions=(led, lost)))
    return cluster


def run_node(
    handlers: Iterable[ApiHandler],
    test: Callable[[Server], Awaitable[None]],
    dispatcher: Dispatcher | None = None,
) -> None:
    """Run a test against a node that serves these handlers."""

    async def main() -> None:
        server = await serve(HOST, 0, dispatcher or Dispatcher(handlers))
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.close(1.0)

    asyncio.run(main())


async def ask(server: Server, request: Request, version: int, secret: bytes | None = None):  # type: ignore[no-untyped-def]
    """Send one request, in one version, on a connection of its own."""
    connection = await Connection.open(Endpoint(HOST, server.port), secret=secret, timeout_s=30)
    try:
        payload = encode_request(request, version, 7, "test")
        answer = await connection.exchange(request.API_KEY, (payload,), timeout_s=30)
        correlation_id, response = decode_response(response_type(request.API_KEY), version, answer)
        assert correlation_id == 7
        return response
    finally:
        connection.close()


def ask_once(
    handlers: Iterable[ApiHandler], request: Request, version: int, secret: bytes | None = None
) -> Response:
    """The response to one request of a node that serves these handlers."""
    found: list[Response] = []

    async def test(server: Server) -> None:
        found.append(await ask(server, request, version, secret))

    run_node(handlers, test)
    return found[0]
