"""Memory of a server's connections: none when idle or closed, else within the limits."""

import asyncio
import gc
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from sparklog.transport import (
    ClientConnection,
    HandlerResult,
    ParkedResponse,
    Server,
    ServerConnection,
    ServerLimits,
    connect,
    memory_pool,
)
from sparklog.transport import server_connection as connection_module
from sparklog.transport.queued_requests import FREE_BYTES
from sparklog.transport.unsent_responses import UnsentResponses
from sparklog.types import Endpoint
from sparklog.wire.framing.receive_memory import SPARES_BYTES_MAX
from tests.support.raw_wire import framed
from tests.support.waiting import until
from tests.unit.transport.running_server import HOST, Handler, run_with_server

MIB = 2**20

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def size_of(_connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
    """Answers how long the request was and what its bytes were."""
    frame = frames.popleft()
    return ((b"%d %r" % (len(frame), bytes(set(frame))),),)


def run(
    test: Callable[[Server], Awaitable[None]],
    limits: ServerLimits | None = None,
    handler: Handler = size_of,
) -> None:
    run_with_server(
        test, handler, limits=limits, over_limit_handler=handler, check_closed=holds_nothing
    )


def holds_nothing(server: Server) -> None:
    assert server.memory.requests.held_bytes == 0
    assert server.memory.requests.waiting == 0
    assert server.memory.answers.total_bytes == 0
    assert server.memory._timer is None
    assert server.memory.receive.spares_bytes <= SPARES_BYTES_MAX


async def open_streams(server: Server) -> Streams:
    return await asyncio.open_connection(HOST, server.port)


async def ask(streams: Streams, payload: bytes) -> bytes:
    reader, writer = streams
    writer.write(framed(payload))
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Memory must be freed by reference counts alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parking(futures: list[asyncio.Future[bytes]]) -> Handler:
    def handle(connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        body = bytes(frames.popleft())
        if not body.startswith(b"p"):
            return ((body,),)
        connection.state["asked by"] = connection  # like a handler that keeps a context
        connection.call_on_close(lambda: connection.state.get("asked by"))
        futures.append(asyncio.get_running_loop().create_future())
        return (
            ParkedResponse(
                futures[-1], lambda done: None if done.cancelled() else (done.result(),)
            ),
        )

    return handle


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize(
    "sent", [b"", framed(b"x" * 10), (100 * MIB).to_bytes(4, "big") + bytes(3 * MIB), framed(b"p")]
)
@pytest.mark.parametrize("ends", ["close", "abort", "server aborts"])
def test_a_closed_connection_is_freed_without_garbage_collection(sent: bytes, ends: str) -> None:
    futures: list[asyncio.Future[bytes]] = []

    async def test(server: Server) -> None:
        _, writer = await open_streams(server)
        writer.write(sent)
        await writer.drain()
        await until(lambda: server.bytes_received == len(sent) and len(server.connections) == 1)
        (connection,) = server.connections
        held = weakref.ref(connection)
        if ends == "server aborts":
            connection.abort()
        del connection
        if ends == "close":
            writer.close()
        else:
            writer.transport.abort()
        await until(lambda: not server.connections or _answer(futures))
        for future in futures:
            future.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert held() is None
        writer.transport.abort()

    run(test, handler=parking(futures))


def _answer(futures: list[asyncio.Future[bytes]]) -> bool:
    """A client that closed only its half still gets its responses."""
    for future in futures:
        if not future.done():
            future.set_result(b"late")
    return False


@pytest.mark.usefixtures("no_gc")
def test_a_closed_client_is_freed_without_garbage_collection() -> None:
    async def test(server: Server) -> None:
        client = await connect(Endpoint(HOST, server.port), 30)
        assert await client.request([b"x" * 200_000]) == b"200000 b'x'"
        frames = client._frames
        held: weakref.ref[ClientConnection] = weakref.ref(client)
        client.close()
        await until(lambda: not server.connections)
        assert (len(frames._shared), len(frames._spare), frames._large) == (4, 0, None)
        del client
        await asyncio.sleep(0)
        assert held() is None

    run(test)


def test_a_connection_that_was_used_and_is_idle_holds_no_buffer() -> None:
    async def test(server: Server) -> None:
        streams = await open_streams(server)
        for size in (1, 5_000, 300_000, 3 * MIB, 20 * MIB):
            assert await ask(streams, b"x" * size) == b"%d b'x'" % size
            (connection,) = server.connections
            assert connection._frame_decoder.capacity_bytes == 0
        streams[1].close()

    run(test)


def test_requests_of_many_connections_do_not_mix() -> None:
    """All connections receive into the same memory, in turns, inside frames of any size."""

    async def test(server: Server) -> None:
        sizes = [10, 5_000, 70_000, 300_000, 600_000, 2 * MIB]
        clients = [await open_streams(server) for _ in range(12)]
        for number, (_, writer) in enumerate(clients):
            frames = [framed(bytes([number + 1]) * size) for size in sizes]
            writer.write(b"".join(frames[number % 6 :] + frames[: number % 6]))
        for number, (reader, writer) in enumerate(clients):
            for size in sizes[number % 6 :] + sizes[: number % 6]:
                answer = b"%d %r" % (size, bytes([number + 1]))
                assert await reader.readexactly(len(answer) + 4) == framed(answer)
            writer.close()

    run(test)


def test_requests_that_must_wait_stay_as_they_were_sent() -> None:
    """Their bytes leave the shared memory, into which another client receives meanwhile."""
    futures: list[asyncio.Future[bytes]] = []

    async def test(server: Server) -> None:
        first, second = await open_streams(server), await open_streams(server)
        bodies = [b"p%d" % number + bytes([65 + number % 26]) * 500 for number in range(600)]
        first[1].write(b"".join(map(framed, bodies)))
        await until(lambda: len(futures) == connection_module.PARKED_REPLIES_MAX)
        await until(lambda: any(c._memory.held_request_bytes for c in server.connections))
        kept = 504 * (600 - len(futures)) - 4 * (600 - len(futures))
        assert 0 < server.memory.requests.held_request_bytes <= kept + 600 * 4
        assert await ask(second, b"z" * 400_000) == b"z" * 400_000
        for number in range(600):
            await until(lambda n=number: len(futures) > n)  # type: ignore[misc]
            futures[number].set_result(b"%d" % number)
        for number in range(600):
            answer = framed(b"%d" % number)
            assert await first[0].readexactly(len(answer)) == answer
        assert server.memory.requests.held_request_bytes == 0
        for _, writer in (first, second):
            writer.close()

    seen: list[bytes] = []
    handle = parking(futures)

    def remembering(
        connection: ServerConnection, frames: deque[memoryview]
    ) -> Sequence[HandlerResult]:
        seen.append(bytes(frames[0][-1:]))
        return handle(connection, frames)

    run(test, handler=remembering)
    parked = [last for last in seen if last != b"z"]
    assert parked == [bytes([65 + number % 26]) for number in range(600)]


# -- the bound on all requests together

#: Room for one frame of 4 MiB and less, and for one larger one, at a time.
TIGHT = ServerLimits(queued_bytes_max=16 * MIB, frame_bytes_max=8 * MIB)
#: Sends half of it.
FRAME = framed(b"h" * (8 * MIB))


async def half_sent(server: Server, count: int) -> list[Streams]:
    clients = [await open_streams(server) for _ in range(count)]
    for _, writer in clients:
        writer.write(FRAME[: 4 * MIB])
    await until(lambda: server.memory.requests.waiting == count - 1)
    return clients


def test_frames_wait_for_their_turn_and_all_arrive() -> None:
    async def test(server: Server) -> None:
        clients = await half_sent(server, 4)
        for _, writer in clients:
            writer.write(FRAME[4 * MIB :])
        for reader, writer in clients:
            assert await reader.readexactly(15) == framed(b"8388608 b'h'")[:15]
            writer.close()
        assert server.memory.connections_slow == 0

    run(test, TIGHT)


def test_whole_small_requests_are_answered_while_large_ones_wait() -> None:
    async def test(server: Server) -> None:
        slow = await half_sent(server, 3)
        assert server.memory.receive.scarce
        streams = await open_streams(server)
        for size in (10, FREE_BYTES - 4, FREE_BYTES + 10, 60_000, 1 * MIB):
            assert await ask(streams, b"x" * size) == b"%d b'x'" % size
        for _, writer in (*slow, streams):
            writer.close()

    run(test, TIGHT)


def test_clients_that_hold_half_a_frame_are_closed_when_others_wait_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_pool, "CHECK_INTERVAL_S", 0.005)

    async def test(server: Server) -> None:
        slow = await half_sent(server, 3)
        honest = await open_streams(server)
        assert await ask(honest, b"h" * (8 * MIB)) == b"8388608 b'h'"
        assert server.memory.connections_slow == 3
        assert len(server.connections) == 1
        for _, writer in (*slow, honest):
            writer.transport.abort()

    run(test, TIGHT)


def test_a_client_that_nobody_waits_for_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "CHECK_INTERVAL_S", 0.001)

    async def test(server: Server) -> None:
        ((reader, writer),) = await half_sent(server, 1)
        assert server.memory._timer is None
        writer.write(FRAME[4 * MIB :])
        assert await reader.readexactly(15) == framed(b"8388608 b'h'")[:15]
        writer.close()

    run(test, TIGHT)


def test_a_client_that_waits_for_memory_is_not_idle() -> None:
    async def test(server: Server) -> None:
        clients = await half_sent(server, 2)
        while not server.connections_idle:
            for connection in tuple(server.connections):
                connection.check_idle(4)
        await until(lambda: len(server.connections) == 1)
        (left,) = server.connections
        assert not left._memory.waits  # it got the memory of the idle connection
        for _, writer in clients:
            writer.transport.abort()

    run(test, TIGHT)


def test_members_do_not_wait_behind_strangers() -> None:
    def proving(connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        connection.member = connection.member or frames[0] == b"m"
        return size_of(connection, frames)

    async def test(server: Server) -> None:
        slow = await half_sent(server, 4)
        member = await open_streams(server)
        assert await ask(member, b"m") == b"1 b'm'"
        assert await ask(member, b"x" * (8 * MIB)) == b"8388608 b'x'"
        assert server.memory.requests.waiting == 3
        for _, writer in (*slow, member):
            writer.transport.abort()

    run(test, TIGHT, proving)


def test_many_connections_of_a_few_bytes_each_hold_next_to_nothing() -> None:
    async def test(server: Server) -> None:
        clients = [await open_streams(server) for _ in range(100)]
        for _, writer in clients:
            writer.write((8 * MIB).to_bytes(4, "big") + bytes(1000))
        await until(lambda: server.bytes_received == 100 * 1004)
        held = [connection._frame_decoder.capacity_bytes for connection in server.connections]
        assert (held, server.memory.requests.held_bytes) == ([1004] * 100, 0)
        for _, writer in clients:
            writer.transport.abort()

    run(test, TIGHT)


# -- the bound on all answers together

ANSWER = bytes(MIB)


def large(_connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
    frames.popleft()
    return ((ANSWER,),)


def test_clients_that_take_no_answers_are_closed_when_all_together_hold_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_pool, "CHECK_INTERVAL_S", 0.005)

    async def test(server: Server) -> None:
        server.memory.answers = UnsentResponses(20 * MIB)
        reading = await connect(Endpoint(HOST, server.port), 30)
        deaf = [await open_streams(server) for _ in range(12)]
        for _, writer in deaf:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(framed(b"x") * 100)
        seen = 0
        while len(server.connections) > 1:
            seen = max(seen, server.memory.answers.total_bytes)
            assert server.memory.answers.total_bytes <= 2 * 20 * MIB + len(ANSWER)
            assert len(await reading.request([b"x"])) == len(ANSWER)
        assert seen > 20 * MIB
        assert server.memory.connections_slow == 12
        assert server.memory.answers.total_bytes <= 64 * 1024 + len(ANSWER)
        reading.close()
        for _, writer in deaf:
            writer.transport.abort()

    run(test, handler=large)
