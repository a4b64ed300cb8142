"""Pauses between tries that grow, so that who is away is neither pestered nor missed for long.

Owns: how long the next one is.  Must not know what is tried, nor for how long.
"""

import asyncio


class ExponentialBackoff:
    """Each is twice as long as the one before it, up to ``max_s``."""

    __slots__ = ("_initial_s", "_max_s", "next_s")

    def __init__(self, initial_s: float, max_s: float) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self.next_s = initial_s

    @property
    def begun(self) -> bool:
        """Whether there was one since the last success."""
        return self.next_s > self._initial_s

    async def wait(self) -> None:
        """Let one pass."""
        await asyncio.sleep(self.next_s)
        self.next_s = min(self.next_s * 2, self._max_s)

    def reset(self) -> None:
        """A try succeeded: the next one is short again."""
        self.next_s = self._initial_s
