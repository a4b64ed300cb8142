"""The same work on many items, some at a time.

Owns: how many are under way.  Must not know the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def bounded_gather(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], together: int
) -> list[R]:
    """What the work gives for every item, in their order.  Raises what the work raises."""
    places = asyncio.Semaphore(together)

    async def one(item: T) -> R:
        async with places:
            return await work(item)

    return await asyncio.gather(*map(one, items))
