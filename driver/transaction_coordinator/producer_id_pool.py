"""Producer ids that the transaction coordinator can take without waiting.

Owns: how many ids are at hand, and when more are asked for.  Must not know how ids are allocated.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError

#: Below so many ids the pool asks for more, up to so many.
_LOW: Final = 50
_HIGH: Final = 200

logger = logging.getLogger(__name__)


class ProducerIdPool:
    """A few producer ids, each of which is taken once.

    Args:
        allocate: returns an unused producer id, or raises KafkaError.
    """

    def __init__(self, allocate: Callable[[], Awaitable[int]]) -> None:
        self._allocate = allocate
        self._ids: deque[int] = deque()
        self._filling: asyncio.Task[None] | None = None

    def take(self) -> int:
        """An unused producer id.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while there is none.
        """
        if len(self._ids) < _LOW:
            self.fill()
        if not self._ids:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "producer ids are being allocated"
            )
        return self._ids.popleft()

    def fill(self) -> None:
        """Ask for more ids in the background."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def close(self) -> None:
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)

    async def _fill(self) -> None:
        try:
            while len(self._ids) < _HIGH:
                self._ids.append(await self._allocate())
        except KafkaError as error:
            logger.warning("no producer ids for transactions now: %s", error)
