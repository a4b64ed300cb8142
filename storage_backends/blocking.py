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
                done.exception()  # who was cancelled does not want to know
            raise


_runner: BlockingRunner = ThreadRunner()


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` without holding up the loop.

    Cancelling the await forgets work that has not begun and waits for work that has: what the work
    uses (a lock, a folder) may be let go as soon as this has returned.
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
