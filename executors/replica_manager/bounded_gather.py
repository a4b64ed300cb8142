"""The same work on many items, a bounded number of them at the same time.

Owns: the limit.  Must not know the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def bounded_gather(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], together: int
) -> list[R]:
    """The results of ``work`` for all items, in their order.  Raises the errors of ``work``.

    At most ``together`` items are worked on at the same time.
    """
    places = asyncio.Semaphore(together)

    async def one(item: T) -> R:
        async with places:
            return await work(item)

    return await asyncio.gather(*map(one, items))
