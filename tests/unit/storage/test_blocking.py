"""The seam through which blocking work leaves an event loop."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from sparklog.storage_backends.blocking import WORKERS_MAX, replaced_runner, run_blocking

T = TypeVar("T")


def test_work_leaves_the_loop_and_its_result_and_errors_come_back() -> None:
    def divide(left: int, right: int, *, names: list[str]) -> float:
        names.append(threading.current_thread().name)
        return left / right

    async def main() -> float:
        with pytest.raises(ZeroDivisionError):
            await run_blocking(divide, 1, 0, names=names)
        return await run_blocking(divide, 6, 3, names=names)

    names: list[str] = []
    assert asyncio.run(main()) == 2
    assert [name.rpartition("_")[0] for name in names] == ["sparklog-blocking"] * 2


def test_the_loop_goes_on_while_work_blocks() -> None:
    async def main() -> list[str]:
        trace: list[str] = []
        release = threading.Event()
        work = asyncio.create_task(run_blocking(release.wait, 30))
        await asyncio.sleep(0)
        trace.append("loop")
        release.set()
        trace.append("released" if await work else "timed out")
        return trace

    assert asyncio.run(main()) == ["loop", "released"]


def test_cancelled_work_has_ended_when_the_cancellation_returns() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun, release = asyncio.Event(), threading.Event()

        def block() -> None:
            loop.call_soon_threadsafe(begun.set)
            trace.append("released" if release.wait(30) else "timed out")

        running = asyncio.create_task(run_blocking(block))
        await begun.wait()
        running.cancel()
        await asyncio.sleep(0)
        loop.call_soon(release.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        trace.append("cancelled")

    trace: list[str] = []
    asyncio.run(main())
    assert trace == ["released", "cancelled"]


def test_cancelled_work_that_fails_leaves_its_error_to_nobody() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        unhandled: list[str] = []
        loop.set_exception_handler(lambda _, context: unhandled.append(context["message"]))
        begun, release = asyncio.Event(), threading.Event()

        def fail() -> None:
            loop.call_soon_threadsafe(begun.set)
            release.wait(30)
            raise OSError("the device failed")

        running = asyncio.create_task(run_blocking(fail))
        await begun.wait()
        running.cancel()
        loop.call_soon(release.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        del running
        gc.collect()
        return unhandled

    assert asyncio.run(main()) == []


def test_cancelled_work_that_has_not_begun_never_does() -> None:
    async def main() -> None:
        release = threading.Event()
        busy = [asyncio.create_task(run_blocking(release.wait, 30)) for _ in range(WORKERS_MAX)]
        waiting = asyncio.create_task(run_blocking(ran.append, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        await asyncio.gather(*busy)

    ran: list[int] = []
    asyncio.run(main())
    assert ran == []


def test_a_runner_can_be_replaced_for_a_while() -> None:
    ran: list[str] = []

    def inline(work: Callable[[], T], /) -> Awaitable[T]:
        ran.append(threading.current_thread().name)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(work())
        return future

    async def main() -> list[int]:
        with replaced_runner(inline):
            first = await run_blocking(len, "abc")
        return [first, await run_blocking(len, "ab")]

    assert asyncio.run(main()) == [3, 2]
    assert ran == [threading.current_thread().name]
