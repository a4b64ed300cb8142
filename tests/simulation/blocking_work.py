"""The runner behind ``run_blocking``: when blocking work happens, and how long it takes.

Owns: the moments.  Must not know what the work is.

Blocking work happens between its submission and its result, at a moment that the seed chooses:
mostly at once, at times in slices from one operation to the next, while its process goes on.  A
process that is killed before never did it, one that is killed meanwhile did a part of it.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from tests.simulation.fibers import Fiber
from tests.simulation.loop import VirtualLoop

T = TypeVar("T")

#: Seconds that a piece of work, or a slice of it, takes: usually, and now and then.
WORK_S = (0.000_1, 0.002)
STALL_S = (0.01, 0.2)
STALLS_ONE_IN = 50
#: One piece of work in so many is done in slices, usually.
SLICED_ONE_IN = 4


class VirtualRunner:
    """Runs blocking work on behalf of the process that asked (``BlockingRunner``).

    ``end`` it when the world ends.  One piece of work in ``sliced_one_in`` is done in slices.
    """

    def __init__(
        self, loop: VirtualLoop, random: random.Random, *, sliced_one_in: int = SLICED_ONE_IN
    ) -> None:
        self._loop = loop
        self._random = random
        self._sliced_one_in = sliced_one_in
        self._fibers: dict[Fiber, None] = {}

    async def __call__(self, work: Callable[[], T], /) -> T:
        before_s, after_s = self._duration(), self._duration()
        sliced = self._random.random() * self._sliced_one_in < 1
        await asyncio.sleep(before_s)  # cancelled here, the work never begins
        doing = asyncio.ensure_future(self._do(work, after_s, sliced))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            # Work that has begun ends before its caller may go on.
            await asyncio.wait([doing])
            if not doing.cancelled():
                doing.exception()  # nobody wants to know
            raise

    def end(self) -> None:
        """Unwind what stands still; its processes are dead, so nothing comes of it."""
        for fiber in self._fibers:
            while not fiber.resume():
                pass

    async def _do(self, work: Callable[[], Any], seconds: float, sliced: bool) -> Any:
        fiber = Fiber(work, copy_context(), sliced=sliced)
        self._fibers[fiber] = None
        while not fiber.resume():
            await asyncio.sleep(self._duration() + fiber.owed_s)
            fiber.owed_s = 0.0
        del self._fibers[fiber]
        await asyncio.sleep(seconds + fiber.owed_s)
        if fiber.failure is not None:
            raise fiber.failure
        return fiber.result

    def _duration(self) -> float:
        low, high = STALL_S if self._random.random() * STALLS_ONE_IN < 1 else WORK_S
        return low + self._random.random() * (high - low)
