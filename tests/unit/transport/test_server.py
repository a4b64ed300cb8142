"""The transport over loopback: order, regions, back pressure, limits and endings."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from sparklog.errors import ConnectError, DecodeError, StartError
from sparklog.storage_backends.base import file_half
from sparklog.storage_backends.registry import open_backend
from sparklog.transport import (
    EncodedResponse,
    HandlerResult,
    ParkedResponse,
    Server,
    ServerConnection,
    ServerLimits,
    connect,
    serve,
)
from sparklog.transport import server_connection as connection_module
from sparklog.types import Endpoint

HOST = "127.0.0.1"


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(_connection: ServerConnection, payload: memoryview) -> EncodedResponse:
    return (bytes(payload),)


Handler = Callable[[ServerConnection, memoryview], HandlerResult]


def run_with(
    handler: Handler,
    test: Callable[[Server], Awaitable[None]],
    limits: ServerLimits | None = None,
    over_limit_handler: Handler | None = None,
) -> None:
    """``handler`` and ``over_limit_handler`` take one frame at a time."""

    def take_one(peer: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        return (handler(peer, frames.popleft()),)

    def take(peer: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        assert over_limit_handler is not None
        return (over_limit_handler(peer, frames.popleft()),)

    async def main() -> None:
        over_limit = take if over_limit_handler else None
        server = await serve(HOST, 0, take_one, limits=limits, over_limit_handler=over_limit)
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.close(1.0)
        assert server.connections == set()

    asyncio.run(main())


def endpoint(server: Server) -> Endpoint:
    return Endpoint(HOST, server.port)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


class Pausing:
    """Parks every request that starts with ``p`` until the test completes it."""

    def __init__(self) -> None:
        self.parked: dict[bytes, asyncio.Future[bytes]] = {}
        self.seen: list[bytes] = []

    def __call__(self, _connection: ServerConnection, payload: memoryview) -> HandlerResult:
        body = bytes(payload)
        self.seen.append(body)
        if body.startswith(b"n"):
            return None
        if not body.startswith(b"p"):
            return (body,)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.parked[body] = future
        return ParkedResponse(future, lambda done: (done.result(),))


def test_answers_leave_in_request_order_although_later_ones_are_known_first() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        requests = [
            asyncio.ensure_future(client.request([body])) for body in (b"a", b"p1", b"b", b"p2")
        ]
        await requests[0]
        while len(handler.seen) < 4:
            await asyncio.sleep(0)
        handler.parked[b"p2"].set_result(b"second")
        await asyncio.sleep(0.01)
        assert [request.done() for request in requests] == [True, False, False, False]
        handler.parked[b"p1"].set_result(b"first")
        assert await asyncio.gather(*requests) == [b"a", b"first", b"b", b"second"]
        client.close()

    run_with(handler, test)


def test_all_pipelined_requests_are_handled_at_receipt_although_none_is_answered() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"".join(frame(b"p%d" % number) for number in range(5)))
        while len(handler.seen) < 5:
            await asyncio.sleep(0)
        for body in reversed(list(handler.parked)):
            handler.parked[body].set_result(body)
        assert [await read_frame(reader) for _ in range(5)] == [b"p%d" % n for n in range(5)]
        writer.close()

    run_with(handler, test)


def test_a_coroutine_may_answer() -> None:
    async def later(body: bytes) -> bytes:
        await asyncio.sleep(0)
        return body.upper()

    def handler(_connection: ServerConnection, payload: memoryview) -> ParkedResponse:
        return ParkedResponse(later(bytes(payload)), lambda done: (done.result(),))

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        assert await client.request([b"a", memoryview(b"bc")]) == b"ABC"
        client.close()

    run_with(handler, test)


def test_a_request_without_answer_does_not_hold_up_the_next() -> None:
    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        await client.send([b"n1"])
        assert await client.request([b"after"]) == b"after"
        client.close()

    run_with(Pausing(), test)


@pytest.mark.parametrize("url", ["file", "memory"])
def test_regions_and_buffers_of_many_sizes_arrive_whole(url: str, tmp_path: Path) -> None:
    half = file_half(open_backend(str(tmp_path) if url == "file" else "memory://transport-regions"))
    handle = half.open("data", create=True)
    data = os.urandom(3 * 1024 * 1024 + 17)
    handle.writev([data])

    def handler(_connection: ServerConnection, payload: memoryview) -> EncodedResponse:
        start, size = struct.unpack(">ii", payload)
        return (b"<", b"", handle.region(start, size), handle.region(5, 7), b">")

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        ranges = [(0, 1), (0, len(data)), (17, 0), (123, 2_000_000), (len(data) - 1, 1)]
        answers = await asyncio.gather(
            *(client.request([struct.pack(">ii", *wanted)]) for wanted in ranges * 3)
        )
        expected = [b"<" + data[a : a + n] + data[5:12] + b">" for a, n in ranges * 3]
        assert answers == expected
        client.close()

    run_with(handler, test)
    handle.close()


def test_a_region_that_lost_its_bytes_costs_the_connection(tmp_path: Path) -> None:
    half = file_half(open_backend(str(tmp_path)))
    handle = half.open("data", create=True)
    handle.writev([bytes(1000)])

    def handler(_connection: ServerConnection, _payload: memoryview) -> EncodedResponse:
        region = handle.region(0, 1000)
        handle.truncate(10)
        return (region,)

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        with pytest.raises(ConnectError):
            await client.request([b"x"])

    run_with(handler, test)
    handle.close()


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    big = bytes(256 * 1024)
    handled = 0

    def handler(_connection: ServerConnection, _payload: memoryview) -> EncodedResponse:
        nonlocal handled
        handled += 1
        return (big,)

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port, limit=1024)
        writer.write(frame(b"x") * 400)
        while not handled:
            await asyncio.sleep(0)
        before = 0
        while before != handled:
            before = handled
            await asyncio.sleep(0.05)
        (connection,) = server.connections
        assert handled < 400
        assert connection.unsent_bytes <= 4 * 1024 * 1024 + len(big) + 4
        for _ in range(400):
            assert len(await read_frame(reader)) == len(big)
        assert handled == 400
        writer.close()

    run_with(handler, test)


def test_reading_pauses_while_too_many_answers_are_parked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "PARKED_REPLIES_MAX", 4)
    handler = Pausing()

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"".join(frame(b"p%d" % number) for number in range(10)))
        while len(handler.seen) < 4:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert len(handler.seen) == 4
        for number in range(10):
            while b"p%d" % number not in handler.parked:
                await asyncio.sleep(0)
            handler.parked[b"p%d" % number].set_result(b"%d" % number)
        assert [await read_frame(reader) for _ in range(10)] == [b"%d" % n for n in range(10)]
        writer.close()

    run_with(handler, test)


def test_a_half_closed_peer_still_gets_what_it_asked_for() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(frame(b"p1") + frame(b"b"))
        writer.write_eof()
        while b"p1" not in handler.parked:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        handler.parked[b"p1"].set_result(b"late")
        assert [await read_frame(reader), await read_frame(reader)] == [b"late", b"b"]
        assert await reader.read() == b""
        writer.close()

    run_with(handler, test)


def test_a_connection_that_finishes_takes_no_more_of_what_arrived_with_the_last_request() -> None:
    seen: list[bytes] = []

    def handler(connection: ServerConnection, payload: memoryview) -> HandlerResult:
        seen.append(bytes(payload))
        if seen[-1] == b"last":
            connection.finish()
        return (seen[-1],)

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(frame(b"first") + frame(b"last") + frame(b"more"))
        assert await read_frame(reader) == b"first"
        await reader.read()
        assert seen == [b"first", b"last"]
        writer.close()

    run_with(handler, test)


def test_a_reset_peer_is_forgotten_and_its_callbacks_run() -> None:
    closed: list[str] = []
    handler = Pausing()

    def noting(connection: ServerConnection, payload: memoryview) -> HandlerResult:
        connection.call_on_close(lambda: closed.append(connection.peer))
        return handler(connection, payload)

    async def test(server: Server) -> None:
        _reader, writer = await asyncio.open_connection(HOST, server.port)
        sock = writer.get_extra_info("socket")
        peer = "{}:{}".format(*sock.getsockname())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(frame(b"p1"))
        while not handler.parked:
            await asyncio.sleep(0)
        writer.transport.abort()
        while server.connections:
            await asyncio.sleep(0.001)
        handler.parked[b"p1"].set_result(b"nobody listens")
        await asyncio.sleep(0)
        assert closed == [peer]

    run_with(noting, test)


@pytest.mark.parametrize(
    "sent",
    [struct.pack(">i", -1), struct.pack(">i", 1001) + b"x", b"\xff" * 64],
    ids=["negative", "too large", "random"],
)
def test_a_lying_length_costs_the_connection_only(sent: bytes) -> None:
    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        client = await connect(endpoint(server), 30)
        assert await client.request([b"still here"]) == b"still here"
        assert server.frames_refused == 1
        client.close()

    run_with(echo, test, ServerLimits(frame_bytes_max=1000))


@pytest.mark.parametrize("error", [DecodeError("nonsense"), RuntimeError("a bug")])
def test_a_request_that_cannot_be_handled_costs_the_connection_only(error: Exception) -> None:
    def handler(_connection: ServerConnection, payload: memoryview) -> EncodedResponse:
        if payload == b"bad":
            raise error
        return (bytes(payload),)

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        with pytest.raises(ConnectError):
            await client.request([b"bad"])
        client = await connect(endpoint(server), 30)
        assert await client.request([b"good"]) == b"good"
        client.close()

    run_with(handler, test)


def test_what_was_asked_before_a_bad_request_is_answered() -> None:
    def handler(_connection: ServerConnection, payload: memoryview) -> EncodedResponse:
        if payload == b"bad":
            raise DecodeError("nonsense")
        return (bytes(payload),)

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(frame(b"good") + frame(b"bad") + frame(b"never"))
        assert await read_frame(reader) == b"good"
        with pytest.raises(asyncio.IncompleteReadError):
            await read_frame(reader)
        writer.close()

    run_with(handler, test)


def test_connections_over_the_limit_are_closed_at_once() -> None:
    async def test(server: Server) -> None:
        clients = [await connect(endpoint(server), 30) for _ in range(2)]
        assert [await client.request([b"x"]) for client in clients] == [b"x", b"x"]
        _reader, writer = await asyncio.open_connection(HOST, server.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await _reader.readexactly(1)
        writer.close()
        assert server.connections_refused == 1
        clients[0].close()
        while len(server.connections) > 1:
            await asyncio.sleep(0.001)
        third = await connect(endpoint(server), 30)
        assert await third.request([b"y"]) == b"y"
        third.close()
        clients[1].close()

    run_with(echo, test, ServerLimits(connections_max=2))


def test_close_sends_the_answers_that_are_owed_and_refuses_new_work() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        request = asyncio.ensure_future(client.request([b"p1"]))
        while not handler.parked:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(server.close(5))
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectError):
            await connect(endpoint(server), 1)
        handler.parked[b"p1"].set_result(b"done")
        await closing
        assert await request == b"done"
        with pytest.raises(ConnectError, match="lost"):
            await client.request([b"too late"])

    run_with(handler, test)


def test_close_cuts_connections_whose_answers_never_come() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        request = asyncio.ensure_future(client.request([b"p1"]))
        while not handler.parked:
            await asyncio.sleep(0)
        await server.close(0.01)
        assert server.connections == set()
        with pytest.raises(ConnectError):
            await request

    run_with(handler, test)


def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    handler = Pausing()

    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.request([b"p1"]), 0.02)
        handler.parked[b"p1"].set_result(b"dropped")
        assert await client.request([b"after"]) == b"after"
        client.close()

    run_with(handler, test)


def test_requests_over_the_bound_wait_for_answers() -> None:
    async def test(server: Server) -> None:
        client = await connect(endpoint(server), 30)
        bodies = [b"%d" % number for number in range(2000)]
        requests = [asyncio.ensure_future(client.request([body])) for body in bodies]
        await asyncio.sleep(0)
        assert client.in_flight <= 256
        assert await asyncio.gather(*requests) == bodies
        client.close()

    run_with(echo, test)


def test_an_address_in_use_is_named_with_the_remedy() -> None:
    async def test(server: Server) -> None:
        with pytest.raises(StartError, match=f"{HOST}:{server.port}.*choose another port"):
            await serve(HOST, server.port, echo)

    run_with(echo, test)


def test_an_endpoint_where_nobody_listens_is_named() -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        with pytest.raises(ConnectError, match=f"{HOST}:{port}"):
            await connect(Endpoint(HOST, port), 2)

    asyncio.run(main())


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    half = file_half(open_backend(str(tmp_path)))
    handle = half.open("data", create=True)
    handle.writev([bytes(4 * 1024 * 1024)])

    def handler(_connection: ServerConnection, _payload: memoryview) -> EncodedResponse:
        return (handle.region(0, 4 * 1024 * 1024),)

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port, limit=1024)
        writer.write(frame(b"x") * 3)
        await read_frame(reader)
        writer.transport.abort()
        while server.connections:
            await asyncio.sleep(0.001)

    run_with(handler, test)
    handle.close()
    del half
    assert len(os.listdir("/proc/self/fd")) <= before + 1
