"""Waiting until a condition holds, for code that blocks and for coroutines.

Owns: how often a condition is looked at, and the error when it does not hold in time.
"""

import asyncio
import time
from collections.abc import Callable

#: Seconds between two looks of code that blocks, and of a coroutine.
LOOK_SECONDS = 0.02
_LOOK_SECONDS_ASYNC = 0.001


def wait_for(
    condition: Callable[[], object], seconds: float = 60.0, what: str = "it did not happen in time"
) -> None:
    """Block until ``condition()`` is true.  Raises AssertionError after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(LOOK_SECONDS)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Let other tasks run until ``condition()`` is true.  Raises TimeoutError after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(_LOOK_SECONDS_ASYNC)
