"""Requests behind a long response, while other connections receive into the same memory."""

import asyncio
from collections import deque
from collections.abc import Sequence

from sparklog.slices import Slices
from sparklog.transport import (
    HandlerResult,
    Server,
    ServerConnection,
    ServerLimits,
    SlicedResponse,
    serve,
)
from sparklog.transport.slice_scheduler import TURN_UNITS
from tests.support.raw_wire import framed
from tests.support.waiting import until

HOST = "127.0.0.1"
LONG, REQUEST_BYTES = b"long", 1000


class Echo:
    """Responds with the request; to a request ``long`` only after ``release``."""

    def __init__(self) -> None:
        self.released = False
        self.working = 0

    def __call__(self, _: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        request = bytes(frames.popleft())
        if request == LONG:
            return (SlicedResponse(self._until_released(), REQUEST_BYTES),)
        return ((request,),)

    def _until_released(self) -> Slices[HandlerResult]:
        self.working += 1
        while not self.released:
            yield TURN_UNITS
        self.working -= 1
        return (LONG,)


async def overwrite(server: Server) -> None:
    """Let another connection receive into the shared memory."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    junk = framed(b"z" * 400_000)
    writer.write(junk)
    assert await reader.readexactly(len(junk)) == junk
    writer.close()


def run(test: object, echo: Echo) -> None:
    assert callable(test)

    async def main() -> None:
        server = await serve(HOST, 0, echo)
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.close(1.0)
        assert server.memory.requests.held_bytes == 0
        assert len(server.scheduler) == 0

    asyncio.run(main())


def test_requests_behind_a_long_one_stay_as_they_were_sent() -> None:
    echo = Echo()
    sent = [LONG, *(b"%d" % number * 300 for number in range(50)), LONG, b"last"]
    wire = b"".join(map(framed, sent))

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(wire)
        await until(lambda: echo.working)
        await overwrite(server)
        echo.released = True
        assert await reader.readexactly(len(wire)) == wire
        writer.close()

    run(test, echo)


def test_the_request_that_is_worked_on_counts_as_memory_of_requests() -> None:
    echo = Echo()
    waiting = b"w" * 500

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(framed(LONG) + framed(waiting))
        await until(lambda: echo.working)
        await until(lambda: server.memory.requests.held_bytes == REQUEST_BYTES + len(waiting))
        echo.released = True
        answers = framed(LONG) + framed(waiting)
        assert await reader.readexactly(len(answers)) == answers
        assert server.memory.requests.held_bytes == 0
        writer.close()

    run(test, echo)


def test_a_client_that_sends_nothing_more_gets_the_answers_behind_a_long_one() -> None:
    echo = Echo()
    wire = b"".join(map(framed, (LONG, b"one", b"two", LONG, b"three")))

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(wire)
        writer.write_eof()
        await until(lambda: echo.working)
        await overwrite(server)
        echo.released = True
        assert await reader.read() == wire
        writer.close()

    run(test, echo)


def test_a_client_that_is_gone_leaves_nothing_behind() -> None:
    echo = Echo()

    async def test(server: Server) -> None:
        _, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(framed(LONG) + framed(b"behind"))
        await until(lambda: echo.working)
        writer.transport.abort()
        # Reading is paused; only a write, or the end of the server, notices the closed connection.
        for connection in tuple(server.connections):
            connection.abort()
        await until(lambda: not server.connections)
        await until(lambda: not len(server.scheduler))
        assert server.memory.requests.held_bytes == 0

    run(test, echo)


def test_requests_that_are_worked_on_stay_within_the_bound() -> None:
    size, bound, clients = 1_000_000, 16_000_000, 40
    released: list[bool] = []

    def work() -> Slices[HandlerResult]:
        while not released:
            yield TURN_UNITS
        return (b"done",)

    def handle(_: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        return (SlicedResponse(work(), len(frames.popleft())),)

    async def one(server: Server) -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(framed(b"x" * size))
        assert await reader.readexactly(8) == framed(b"done")
        writer.close()

    async def main() -> None:
        limits = ServerLimits(queued_bytes_max=bound, frame_bytes_max=2 * size)
        server = await serve(HOST, 0, handle, limits=limits)
        most = 0
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(one(server))
            quiet = 0
            while quiet < 300:
                received = server.bytes_received
                await asyncio.sleep(0)
                quiet = quiet + 1 if server.bytes_received == received and received else 0
                most = max(most, server.memory.requests.held_bytes)
            released.append(True)
            while server.bytes_received < clients * (size + 4):
                await asyncio.sleep(0)
                most = max(most, server.memory.requests.held_bytes)
        assert size < most <= bound
        await server.close(1.0)
        assert server.memory.requests.held_bytes == 0
        server.memory.requests.check_invariants()

    asyncio.run(main())
