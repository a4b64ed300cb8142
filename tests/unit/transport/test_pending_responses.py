"""Responses that a handler completes later: in order, or after the connection has ended."""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence

from sparklog.transport import (
    HandlerResult,
    ParkedResponse,
    PendingResponse,
    ServerConnection,
    serve,
)

HOST = "127.0.0.1"


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def test_they_leave_in_request_order_and_none_is_no_answer() -> None:
    responses: list[PendingResponse] = []

    def handle(_: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        responses.append(PendingResponse())
        if bytes(frames.popleft()) == b"known":
            responses[-1].complete((b"at once",))
        return responses[-1:]

    async def main() -> None:
        server = await serve(HOST, 0, handle)
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"".join(map(frame, (b"first", b"known", b"nothing", b"last"))))
            while len(responses) < 4:
                await asyncio.sleep(0)
            responses[3].complete((b"fourth",))
            responses[2].complete(None)
            (connection,) = server.connections
            assert connection.parked == 4
            responses[0].complete((b"first",))
            answers = [await read_frame(reader) for _ in range(3)]
            assert answers == [b"first", b"at once", b"fourth"]
            writer.write(frame(b"late"))
            while len(responses) < 5:
                await asyncio.sleep(0)
            connection.abort()
            responses[4].complete((b"nobody takes it",))
            assert await reader.read() == b""
            writer.close()
        await server.close(1.0)

    asyncio.run(main())


def test_a_future_that_is_done_answers_at_receipt_and_in_order() -> None:
    waiting: list[asyncio.Future[bytes]] = []
    parked: list[int] = []

    def handle(connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        payload = bytes(frames.popleft())
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if payload == b"later":
            waiting.append(future)
            parked.append(connection.parked)
        else:
            future.set_result(payload)
        return (ParkedResponse(future, lambda done: (done.result(),)),)

    async def main() -> None:
        server = await serve(HOST, 0, handle)
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"".join(map(frame, (b"one", b"two", b"later", b"four"))))
            assert [await read_frame(reader) for _ in range(2)] == [b"one", b"two"]
            assert parked == [0], "neither of the first two waits"
            waiting[0].set_result(b"three")
            assert [await read_frame(reader) for _ in range(2)] == [b"three", b"four"]
            writer.close()
        await server.close(1.0)

    asyncio.run(main())
