"""The simulated network under the real transport: delays, cuts, resets, back pressure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.errors import ConnectError
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.transport import (
    ClientConnection,
    EncodedResponse,
    Server,
    ServerConnection,
    connect,
    serve,
)
from sparklog.types import Endpoint
from tests.simulation.world import World

PORT = 5000
Test = Callable[["Pair"], Coroutine[Any, Any, None]]


class Pair:
    """A server that echoes, and a client, on a host each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server_node = world.client("server")
        self.client_node = world.client("asker")
        self.server: Server
        self.asked: list[bytes] = []

    async def open(self) -> None:
        self.server = await self.server_node.run(serve("client-server", PORT, self.handle))

    def handle(self, _connection: ServerConnection, frames: Any) -> list[EncodedResponse]:
        asked = [bytes(frame) for frame in frames]
        frames.clear()
        self.asked += asked
        return [[frame] for frame in asked]

    async def connect(self) -> ClientConnection:
        return await self.client_node.run(connect(Endpoint("client-server", PORT), 5))

    async def echo(self, connection: ClientConnection, data: bytes) -> bytes:
        return bytes(await self.client_node.run(connection.request([data])))


def run(test: Test, seed: int = 1) -> None:
    world = World(seed, brokers=0)

    async def main(world: World) -> None:
        pair = Pair(world)
        await pair.open()
        await test(pair)

    world.run(main)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_arrives_in_order_however_it_is_cut(seed: int) -> None:
    async def test(pair: Pair) -> None:
        connection = await pair.connect()
        sent = [bytes([number]) * (number * 997) for number in range(1, 120)]
        assert await asyncio.gather(*(pair.echo(connection, data) for data in sent)) == sent
        assert pair.asked == sent
        assert pair.world.loop.time() > 0

    run(test, seed)


def test_nobody_listens() -> None:
    async def test(pair: Pair) -> None:
        with pytest.raises(ConnectError, match="client-server:5001 refuses connections"):
            await pair.client_node.run(connect(Endpoint("client-server", PORT + 1), 5))

    run(test)


def test_a_cut_link_holds_bytes_until_it_is_healed() -> None:
    async def test(pair: Pair) -> None:
        world, connection = pair.world, await pair.connect()
        assert await pair.echo(connection, b"before") == b"before"
        world.partition_network("client-asker", "client-server")
        asking = asyncio.ensure_future(pair.echo(connection, b"meanwhile"))
        await world.sleep(2)
        assert pair.asked == [b"before"]
        world.heal_network()
        assert await asking == b"meanwhile"

    run(test)


def test_a_link_can_be_cut_one_way() -> None:
    async def test(pair: Pair) -> None:
        world, connection = pair.world, await pair.connect()
        world.partition_network("client-server", "client-asker", one_way=True)
        asking = asyncio.ensure_future(pair.echo(connection, b"heard"))
        await world.sleep(2)
        assert pair.asked == [b"heard"]
        assert not asking.done()
        world.heal_network()
        assert await asking == b"heard"

    run(test)


def test_connecting_over_a_cut_link_takes_until_it_is_healed_or_time_is_up() -> None:
    async def test(pair: Pair) -> None:
        world = pair.world
        world.partition_network("client-asker", "client-server")
        with pytest.raises(ConnectError, match="did not accept within 5 s"):
            await pair.connect()
        connecting = asyncio.ensure_future(pair.connect())
        await world.sleep(3)
        world.heal_network()
        assert await pair.echo(await connecting, b"x") == b"x"

    run(test)


def test_some_connections_are_given_up_while_the_link_is_cut() -> None:
    async def test(pair: Pair) -> None:
        connections = [await pair.connect() for _ in range(20)]
        pair.world.partition_network("client-asker", "client-server")
        await pair.world.sleep(60)
        lost = sum(connection.closed for connection in connections)
        assert 0 < lost < 20
        pair.world.heal_network()
        left = [connection for connection in connections if not connection.closed]
        answers = await asyncio.gather(
            *(pair.echo(each, b"x") for each in left), return_exceptions=True
        )
        assert b"x" in answers  # and where only the server gave up, the client learns it now
        assert all(answer == b"x" or isinstance(answer, ConnectError) for answer in answers)

    run(test)


def test_a_reset_fails_what_is_under_way() -> None:
    async def test(pair: Pair) -> None:
        world, connection = pair.world, await pair.connect()
        assert await pair.echo(connection, b"x") == b"x"
        world.slow_network("client-asker", "client-server", 1.0, 2.0)
        asking = asyncio.ensure_future(pair.echo(connection, b"never"))
        await world.sleep(0.01)
        assert world.reset_connections("client-asker", "client-server") == 1
        with pytest.raises(ConnectError, match="Connection reset by peer"):
            await asking
        await world.sleep(5)
        assert pair.server.connections == set()

    run(test)


def test_a_killed_process_closes_its_connections_and_refuses_new_ones() -> None:
    async def test(pair: Pair) -> None:
        connection = await pair.connect()
        pair.world.kill_client("server")
        with pytest.raises(ConnectError, match="lost"):
            await pair.echo(connection, b"x")
        with pytest.raises(ConnectError, match="refuses"):
            await pair.connect()

    run(test)


def test_a_paused_process_accepts_and_answers_later() -> None:
    async def test(pair: Pair) -> None:
        world = pair.world
        world.loop.hold(pair.server_node.node)
        asking = asyncio.ensure_future(pair.echo(await pair.connect(), b"patience"))
        await world.sleep(30)
        assert not asking.done()
        world.loop.release(pair.server_node.node)
        assert await asking == b"patience"

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_reader_meets_back_pressure(seed: int) -> None:
    """Regions leave in parts, as far as the pipe takes them."""
    handle_source = MemoryBackend().open("data", create=True)
    data = bytes(range(256)) * 4096
    handle_source.writev([data])

    async def test(pair: Pair) -> None:
        def send_region(_connection: ServerConnection, frames: Any) -> list[EncodedResponse]:
            frames.clear()
            return [[b"<", handle_source.region(0, len(data)), b">"]]

        pair.server.handler = send_region
        connection = await pair.connect()
        pair.world.loop.hold(pair.client_node.node)
        asking = asyncio.ensure_future(pair.echo(connection, b"all of it"))
        pair.world.loop.release(pair.client_node.node)
        await pair.world.sleep(0.002)
        pair.world.loop.hold(pair.client_node.node)
        await pair.world.sleep(5)
        (serving,) = pair.server.connections
        assert serving.unsent_bytes > len(data) // 2
        pair.world.loop.release(pair.client_node.node)
        assert await asking == b"<" + data + b">"
        assert serving.unsent_bytes == 0

    run(test, seed)
