"""How long the callbacks of an event loop hold it."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: The longest hold that any request or work may cause, in seconds of CPU time.
HOLD_S_MAX = 0.25
#: CPU time of ``_some_work`` on a machine that this bound was made for; slower ones need more.
_WORK_S = 0.03


class Holds:
    """The longest callback of one loop, in CPU time.

    ``max_s`` is HOLD_S_MAX, or more on a machine that is slow, or has other work, at the moment.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.max_s = HOLD_S_MAX * max(1.0, min(_some_work() for _ in range(3)) / _WORK_S)
        self._thread = threading.get_ident()

    @contextmanager
    def measured(self) -> Iterator[None]:
        handle_type: Any = asyncio.Handle
        run_callback: Callable[[asyncio.Handle], None] = handle_type._run

        def run_measured(handle: asyncio.Handle) -> None:
            before = time.thread_time()
            run_callback(handle)
            if threading.get_ident() == self._thread:
                self.longest_s = max(self.longest_s, time.thread_time() - before)

        handle_type._run = run_measured
        gc.collect()
        gc.freeze()  # as nodes do: what the test's process has loaded is not what a node has
        try:
            yield
        finally:
            gc.unfreeze()
            handle_type._run = run_callback


def _some_work() -> float:
    """Do what Python does most, and return the seconds of CPU time that it took."""
    before = time.thread_time()
    made: dict[int, tuple[int, str]] = {}
    for number in range(300_000):
        made[number % 997] = number, str(number)
    return time.thread_time() - before
