"""Limits of connections: their number, their idle time, and the memory of slow readers."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from sparklog.errors import ConnectError, FrameError
from sparklog.transport import (
    ClientConnection,
    HandlerResult,
    ParkedResponse,
    Server,
    ServerConnection,
    ServerLimits,
    connect,
    over_limit,
    serve,
)
from sparklog.transport import server as server_module
from sparklog.transport.channel import UNSENT_BYTES_MAX
from sparklog.transport.idle import IDLE_CHECKS
from sparklog.transport.over_limit import OverLimitConnections
from sparklog.types import Endpoint
from tests.support.logged import messages_of
from tests.unit.transport.running_server import HOST, Handler, run_with_server

#: Long enough that no timer fires during a test.
NEVER_MS = 3_600_000


def echo(_connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
    return ((bytes(frames.popleft()),),)


def run(
    test: Callable[[Server], Awaitable[None]],
    limits: ServerLimits,
    handler: Handler = echo,
    over_limit_handler: Handler | None = None,
) -> None:
    run_with_server(test, handler, limits=limits, over_limit_handler=over_limit_handler)


async def client_of(server: Server) -> ClientConnection:
    return await connect(Endpoint(HOST, server.port), 30)


async def is_served(server: Server, source: str = HOST) -> bool:
    """Whether a request from an address is answered; the connection is then closed."""
    reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(source, 0))
    try:
        writer.write(b"\0\0\0\1x")
        return await reader.readexactly(5) == b"\0\0\0\1x"
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def gone(server: Server, left: int = 0) -> None:
    while len(server.connections) > left:
        await asyncio.sleep(0)


def check_idle(server: Server, times: int) -> None:
    """Check all connections, as the timer does."""
    for _ in range(times):
        for connection in tuple(server.connections):
            connection.check_idle(IDLE_CHECKS)


# -- how many


def test_the_limit_is_reached_but_not_passed_and_what_closes_makes_room() -> None:
    async def test(server: Server) -> None:
        clients = [await client_of(server) for _ in range(3)]
        assert [await client.request([b"x"]) for client in clients] == [b"x"] * 3
        assert not await is_served(server)
        assert (len(server.connections), server.connections_refused) == (3, 1)
        clients.pop().close()
        await gone(server, 2)
        assert await is_served(server)
        await gone(server, 2)
        for client in clients:
            client.close()

    run(test, ServerLimits(connections_max=3))


def test_each_address_has_a_limit_of_its_own_or_an_override() -> None:
    async def test(server: Server) -> None:
        first = await client_of(server)
        assert await first.request([b"x"]) == b"x"
        assert not await is_served(server)
        assert await is_served(server, "127.0.0.2")
        assert not await is_served(server, "127.0.0.3")
        first.close()
        await gone(server)
        assert await is_served(server)

    run(
        test,
        ServerLimits(connections_per_address_max=1, connections_max_by_address={"127.0.0.3": 0}),
    )


def test_a_limit_that_shrinks_keeps_what_is_open() -> None:
    async def test(server: Server) -> None:
        clients = [await client_of(server) for _ in range(2)]
        assert [await client.request([b"x"]) for client in clients] == [b"x"] * 2
        server.set_limits(ServerLimits(connections_max=1))
        assert [await client.request([b"y"]) for client in clients] == [b"y"] * 2
        assert not await is_served(server)
        server.set_limits(ServerLimits(connections_max=3))
        assert await is_served(server)
        for client in clients:
            client.close()

    run(test, ServerLimits())


def test_the_kernel_s_buffers_are_as_large_as_asked_for() -> None:
    async def test(server: Server) -> None:
        client = await client_of(server)
        assert await client.request([b"x"]) == b"x"
        (connection,) = server.connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        sizes = [
            sock.getsockopt(socket.SOL_SOCKET, option)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
        ]
        assert sizes == [2 * 10_000, 2 * 20_000]  # the kernel doubles them for its own needs
        client.close()

    run(test, ServerLimits(receive_buffer_bytes=10_000, send_buffer_bytes=20_000))


def test_refusals_are_said_ever_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: Server) -> None:
        for _ in range(9):
            assert not await is_served(server)

    run(test, ServerLimits(connections_max=0))
    said = [text.partition("refused: ")[2] for text in messages_of(caplog, over_limit)]
    assert said == [
        f"0 are open, max.connections is 0 ({count} refused so far)" for count in (1, 2, 4, 8)
    ]


# -- connections over a limit


def proving(connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
    """An over_limit_handler that takes ``m`` for a member's proof."""
    if frames[0] != b"m":
        raise FrameError("only members")
    connection.member = True
    connection.admit_member()
    return echo(connection, frames)


def test_a_member_comes_in_although_clients_use_up_the_limit() -> None:
    async def test(server: Server) -> None:
        client = await client_of(server)
        assert await client.request([b"x"]) == b"x"
        assert not await is_served(server)
        member = await client_of(server)
        assert await member.request([b"m"]) == b"m"
        assert await member.request([b"anything"]) == b"anything"
        assert (server.connections_refused, server.frames_refused) == (1, 0)
        client.close()
        member.close()

    run(test, ServerLimits(connections_max=1), over_limit_handler=proving)


def test_who_waits_at_the_door_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "OverLimitConnections", partial(OverLimitConnections, 2))

    async def test(server: Server) -> None:
        silent = [await client_of(server) for _ in range(3)]
        while len(server.connections) != 2:
            await asyncio.sleep(0)
        assert await silent[1].request([b"m"]) == b"m"
        newest = await client_of(server)
        assert await newest.request([b"m"]) == b"m"
        assert await silent[2].request([b"m"]) == b"m"
        with pytest.raises(ConnectError):
            await silent[0].request([b"m"])
        for client in (*silent, newest):
            client.close()

    run(test, ServerLimits(connections_max=0), over_limit_handler=proving)


# -- idle


def test_an_idle_connection_is_closed_by_the_timer_and_a_busy_one_is_not() -> None:
    async def test(server: Server) -> None:
        idle, busy = await client_of(server), await client_of(server)
        assert await idle.request([b"x"]) == b"x"
        while not idle.closed:
            assert await busy.request([b"y"]) == b"y"
        assert server.connections_idle == 1
        assert not busy.closed
        busy.close()

    run(test, ServerLimits(idle_ms_max=100))


def test_a_connection_is_closed_after_so_many_quiet_looks_and_not_before() -> None:
    async def test(server: Server) -> None:
        client = await client_of(server)
        for _ in range(3):
            assert await client.request([b"x"]) == b"x"
            check_idle(server, 1)  # there was activity since the last check
            check_idle(server, IDLE_CHECKS - 1)
            assert not client.closed
        check_idle(server, 1)
        await gone(server)
        assert server.connections_idle == 1

    run(test, ServerLimits(idle_ms_max=NEVER_MS))


def test_a_client_that_waits_for_our_answer_is_not_idle() -> None:
    futures: list[asyncio.Future[bytes]] = []

    def parking(
        _connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        frames.popleft()
        futures.append(asyncio.get_running_loop().create_future())
        return (ParkedResponse(futures[-1], lambda done: (done.result(),)),)

    async def test(server: Server) -> None:
        client = await client_of(server)
        asked = asyncio.ensure_future(client.request([b"x"]))
        while not futures:
            await asyncio.sleep(0)
        check_idle(server, 5 * IDLE_CHECKS)
        futures[0].set_result(b"late")
        assert await asked == b"late"
        client.close()

    run(test, ServerLimits(idle_ms_max=NEVER_MS), parking)


def test_the_idle_limit_can_be_taken_away_and_given_back() -> None:
    async def test(server: Server) -> None:
        client = await client_of(server)
        assert await client.request([b"x"]) == b"x"
        server.set_limits(ServerLimits(idle_ms_max=-1))
        assert server._idle._timer is None
        server.set_limits(ServerLimits(idle_ms_max=20))
        while not client.closed:
            await asyncio.sleep(0.001)

    run(test, ServerLimits(idle_ms_max=NEVER_MS))


# -- slow readers

BIG = bytes(256 * 1024)


def big(_connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
    frames.popleft()
    return ((BIG,),)


async def fill(server: Server, sock: socket.socket) -> ServerConnection:
    """Request more than the sockets hold until the server pauses; returns its connection."""
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (HOST, server.port))
    await loop.sock_sendall(sock, b"\0\0\0\1x" * 400)
    while not server.connections or not next(iter(server.connections))._paused:
        await asyncio.sleep(0)
    (connection,) = server.connections
    return connection


def test_a_slow_reader_holds_a_bounded_number_of_bytes_and_gets_everything_in_the_end() -> None:
    async def test(server: Server) -> None:
        with socket.socket() as sock:
            sock.setblocking(False)
            connection = await fill(server, sock)
            assert connection.unsent_bytes <= UNSENT_BYTES_MAX + len(BIG) + 4
            wanted = 400 * (len(BIG) + 4)
            while wanted:
                wanted -= len(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
                assert connection.unsent_bytes <= UNSENT_BYTES_MAX + len(BIG) + 4

    run(test, ServerLimits(), big)


def test_a_reader_that_makes_no_progress_is_closed_and_one_that_crawls_is_not() -> None:
    async def test(server: Server) -> None:
        with socket.socket() as sock:
            sock.setblocking(False)
            connection = await fill(server, sock)
            for _ in range(3):
                before = connection.unsent_bytes
                check_idle(server, IDLE_CHECKS)  # the first check sees the earlier activity
                assert server.connections_idle == 0
                while connection.unsent_bytes >= before:
                    await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
                    await asyncio.sleep(0)
                    before = max(before, connection.unsent_bytes)
            check_idle(server, IDLE_CHECKS + 1)
            await gone(server)
            assert server.connections_idle == 1

    run(test, ServerLimits(idle_ms_max=NEVER_MS), big)


def test_a_slow_reader_does_not_hold_up_a_stop_for_longer_than_its_grace() -> None:
    async def test(server: Server) -> None:
        with socket.socket() as sock:
            sock.setblocking(False)
            await fill(server, sock)
            await server.close(0.05)
            assert server.connections == set()

    run(test, ServerLimits(), big)


def test_limits_that_change_while_a_server_drains_leave_no_timer_behind() -> None:
    async def test() -> None:
        server = await serve(HOST, 0, echo, limits=ServerLimits(idle_ms_max=NEVER_MS))
        await server.close(1.0)
        server.set_limits(ServerLimits(idle_ms_max=NEVER_MS + 1))
        assert server._idle._timer is None

    asyncio.run(test())
