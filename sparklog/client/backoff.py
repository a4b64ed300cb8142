"""Exponential backoff: pauses between attempts that grow up to a limit.

Owns: the length of the next pause.  Must not know the attempts, nor their time limit.
"""

import asyncio


class ExponentialBackoff:
    """Pauses; each is twice as long as the one before it, up to ``max_s`` seconds."""

    __slots__ = ("_initial_s", "_max_s", "next_s")

    def __init__(self, initial_s: float, max_s: float) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self.next_s = initial_s

    @property
    def begun(self) -> bool:
        """Whether there was a pause since the last success."""
        return self.next_s > self._initial_s

    async def wait(self) -> None:
        """Sleep for the next pause."""
        await asyncio.sleep(self.next_s)
        self.next_s = min(self.next_s * 2, self._max_s)

    def reset(self) -> None:
        """Make the next pause short again, after a success."""
        self.next_s = self._initial_s
