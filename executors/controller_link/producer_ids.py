"""Producer ids of one broker, cut from blocks that the controller hands out.

Owns: what is left of the present block, and one allocation at a time.  Must not know how the
controller is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable

#: Gives the first id and the size of a fresh block; raises KafkaError.
Allocate = Callable[[], Awaitable[tuple[int, int]]]


class ProducerIds:
    """Every id is given out once, cluster-wide and for ever."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    def take(self) -> int | None:
        """An id of the present block; None when it is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """An id, of a new block if need be.  Raises KafkaError when none can be had now."""
        async with self._turn:
            producer_id = self.take()
            while producer_id is None:
                first, count = await self._allocate()
                self._next, self._end = first, first + count
                producer_id = self.take()
            return producer_id
