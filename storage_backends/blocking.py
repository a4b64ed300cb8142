"""The seam through which blocking work leaves an event loop.

Owns: one small pool of worker threads, and the function that replaces it.  Must not know what the
work is.  A simulation installs a runner of its own, which decides when the work happens.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

#: Flushes of one disk gain nothing from more threads than this; further work is queued.
WORKERS_MAX = 4

P = ParamSpec("P")
T = TypeVar("T")


class BlockingRunner(Protocol):
    """Runs ``work`` later, in any thread; the awaitable has its result or exception."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class ThreadRunner:
    """Runs work in a pool of threads, which is created at first use."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        self._workers_max = workers_max
        self._pool: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()

    async def __call__(self, work: Callable[[], T], /) -> T:
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers_max, "sparklog-blocking")
            submitted = self._pool.submit(work)
        done = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not submitted.cancel():
                await asyncio.wait([done])
                done.exception()  # mark it as retrieved: the caller was cancelled
            raise


_runner: BlockingRunner = ThreadRunner()


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` in another thread, without blocking the event loop.

    A cancellation drops work that has not begun, and waits for work that has.  Therefore resources
    of the work (a lock, a folder) may be released as soon as this coroutine has ended.
    """
    return await _runner(partial(function, *args, **kwargs))


@contextmanager
def replaced_runner(runner: BlockingRunner) -> Iterator[None]:
    """Route all blocking work of this process through ``runner`` for a while."""
    global _runner
    before, _runner = _runner, runner
    try:
        yield
    finally:
        _runner = before
