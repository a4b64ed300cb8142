"""A look that is repeated, while its interval may change.

Owns: when the next look begins.  Must not know what is looked at.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

#: Seconds until a changed interval takes effect.
LOOK_S: Final = 1.0

logger = logging.getLogger(__name__)


async def repeat(
    look: Callable[[], Awaitable[None]],
    interval_ms: Callable[[], int],
    again: asyncio.Event | None = None,
) -> None:
    """Look, wait for the interval, and so on until cancelled.

    An unexpected error only delays the rest.  The next look follows at once when ``again`` is set.
    """
    again = again or asyncio.Event()
    while True:
        again.clear()
        try:
            await look()
        except Exception:
            logger.exception("the tiering failed; it goes on")
            again.clear()
        await _rest(interval_ms, again)


async def _rest(interval_ms: Callable[[], int], again: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        left_s = began_s + interval_ms() / 1000 - loop.time()
        with suppress(TimeoutError):  # wait_for can lose a cancellation
            async with asyncio.timeout(max(0.0, min(left_s, LOOK_S))):
                await again.wait()
        if left_s <= LOOK_S or again.is_set():
            return
