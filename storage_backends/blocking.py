"""The seam through which blocking work leaves an event loop.

Owns: one small pool of worker threads, and the switch that replaces it.  Must not know what the
work is.  A simulation installs a runner of its own and so decides when the work happens.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

#: Flushes of one disk gain nothing from more threads than this; further work queues.
WORKERS_MAX = 4

P = ParamSpec("P")
T = TypeVar("T")


class BlockingRunner(Protocol):
    """Runs ``work`` at some time, in some thread; the awaitable gives its result or exception."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class ThreadRunner:
    """Runs work in a pool of threads, made at first use."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        self._workers_max = workers_max
        self._pool: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers_max, "sparklog-blocking")
            pool = self._pool
        return asyncio.get_running_loop().run_in_executor(pool, work)


_runner: BlockingRunner = ThreadRunner()


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` without holding up the loop.

    Cancelling the await does not stop work that has begun.
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
