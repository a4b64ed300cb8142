"""How long the callbacks of an event loop hold it."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Holds:
    """The longest callback of one loop, in CPU time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
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
