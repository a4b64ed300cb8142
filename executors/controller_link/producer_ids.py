"""The producer ids of one broker, taken from blocks that the controller allocates.

Owns: the unused rest of the present block, and one allocation at a time.  Must not know how a block
is requested.
"""

import asyncio
from collections.abc import Awaitable, Callable

#: Allocates a block and returns its first id and its size; raises KafkaError.
Allocate = Callable[[], Awaitable[tuple[int, int]]]


class ProducerIds:
    """Hands out producer ids, each of them only once in the cluster's lifetime."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    def take(self) -> int | None:
        """An id of the present block; None when the block is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """An id, from a new block if necessary.  Raises KafkaError if no block can be allocated."""
        async with self._turn:
            producer_id = self.take()
            while producer_id is None:
                first, count = await self._allocate()
                self._next, self._end = first, first + count
                producer_id = self.take()
            return producer_id
