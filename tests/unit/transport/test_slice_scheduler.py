"""The order of sliced work: long requests, and connections with many short requests."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from sparklog.slices import Slices
from sparklog.transport import HandlerResult, ServerConnection, SlicedResponse, connect, serve
from sparklog.transport.slice_scheduler import SLICED_REQUESTS_MAX, TURN_UNITS, SliceScheduler, Work
from sparklog.types import Endpoint

SLICES = 5


def long_answer(seen: list[bytes], name: bytes) -> Slices[HandlerResult]:
    for _ in range(SLICES):
        seen.append(name)
        yield TURN_UNITS
    return (name,)


def test_long_answers_are_made_by_turns_and_leave_in_the_order_of_requests() -> None:
    seen: list[bytes] = []

    def handle(_: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        name = bytes(frames.popleft())
        return (SlicedResponse(long_answer(seen, name)) if name.isupper() else (name,),)

    async def test() -> None:
        server = await serve("127.0.0.1", 0, handle)
        try:
            clients = [await connect(Endpoint("127.0.0.1", server.port), 10) for _ in range(2)]
            asked = [
                asyncio.ensure_future(client.request([name]))
                for client, names in zip(clients, ((b"A", b"a", b"B"), (b"C", b"c")), strict=True)
                for name in names
            ]
            answers = [bytes(each) for each in await asyncio.gather(*asked)]
            assert answers == [b"A", b"a", b"B", b"C", b"c"]
            for client in clients:
                client.close()
        finally:
            await server.close(1.0)

    asyncio.run(asyncio.wait_for(test(), 30))
    assert sorted(seen) == sorted([b"A", b"B", b"C"] * SLICES)
    assert seen.index(b"B") > max(n for n, name in enumerate(seen) if name == b"A")


def test_members_and_a_few_clients_share_the_turns() -> None:
    async def test() -> None:
        scheduler = SliceScheduler()
        seen: list[bytes] = []
        done: list[Work] = []
        for n in range(SLICED_REQUESTS_MAX + 2):
            scheduler.add(long_answer(seen, b"client %d" % n), done.append, member=False)
        scheduler.add(long_answer(seen, b"member"), done.append, member=True)
        while len(scheduler):
            await asyncio.sleep(0)
        assert len(done) == SLICED_REQUESTS_MAX + 3
        assert seen[0] == b"member"
        assert done[0].result == (b"member",)
        first_of_last = seen.index(b"client %d" % (SLICED_REQUESTS_MAX + 1))
        assert seen.count(b"client 0") == SLICES
        assert b"client 0" not in seen[first_of_last:]

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_client_that_sends_many_requests_lets_others_go_on_between() -> None:
    handled: list[str] = []

    def handle(connection: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        handled.append(connection.peer)
        connection.units_spent += TURN_UNITS // 2
        return ((bytes(frames.popleft()),),)

    async def test() -> None:
        server = await serve("127.0.0.1", 0, handle)
        try:
            clients = [await connect(Endpoint("127.0.0.1", server.port), 10) for _ in range(2)]
            asked = [
                asyncio.ensure_future(client.request([b"x"]))
                for client in clients
                for _ in range(30)
            ]
            await asyncio.gather(*asked)
            for client in clients:
                client.close()
        finally:
            await server.close(1.0)

    asyncio.run(asyncio.wait_for(test(), 30))
    assert len(handled) == 60
    changes = sum(one != other for one, other in pairwise(handled))
    assert changes > 5


def test_work_of_a_connection_that_is_gone_stops() -> None:
    seen: list[bytes] = []
    begun = asyncio.Event()

    def endless() -> Slices[HandlerResult]:
        try:
            while True:
                begun.set()
                yield TURN_UNITS
        finally:
            seen.append(b"closed")

    def handle(_: ServerConnection, frames: deque[memoryview]) -> Sequence[HandlerResult]:
        frames.clear()
        return (SlicedResponse(endless()),)

    async def test() -> None:
        server = await serve("127.0.0.1", 0, handle)
        try:
            client = await connect(Endpoint("127.0.0.1", server.port), 10)
            asking = asyncio.ensure_future(client.request([b"x"]))
            await begun.wait()
            for connection in list(server.connections):
                connection.abort()
            while len(server.scheduler):
                await asyncio.sleep(0)
            asking.cancel()
            client.close()
        finally:
            await server.close(1.0)

    asyncio.run(asyncio.wait_for(test(), 30))
    assert seen == [b"closed"]


def test_an_error_while_one_is_told_does_not_keep_others_waiting() -> None:
    def told(_: Work) -> None:
        raise ZeroDivisionError

    async def test() -> None:
        errors: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        scheduler = SliceScheduler()
        done: list[Work] = []
        for n in range(SLICED_REQUESTS_MAX + 1):
            last = n == SLICED_REQUESTS_MAX
            scheduler.add(long_answer([], b"x"), done.append if last else told, member=False)
        while len(scheduler):
            await asyncio.sleep(0)
        assert len(done) == 1
        assert len(errors) == SLICED_REQUESTS_MAX

    asyncio.run(asyncio.wait_for(test(), 30))
