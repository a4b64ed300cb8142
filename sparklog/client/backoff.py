"""Pauses between tries that grow, so that who is away is neither pestered nor missed for long.

Owns: how long the next one is.  Must not know what is tried, nor for how long.
"""

import asyncio


class GrowingBackoff:
    """Each is twice as long as the one before it, up to ``longest_s``."""

    __slots__ = ("_first_s", "_longest_s", "next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.next_s = first_s

    @property
    def begun(self) -> bool:
        """Whether there was one since the last success."""
        return self.next_s > self._first_s

    async def wait(self) -> None:
        """Let one pass."""
        await asyncio.sleep(self.next_s)
        self.next_s = min(self.next_s * 2, self._longest_s)

    def reset(self) -> None:
        """A try succeeded: the next one is short again."""
        self.next_s = self._first_s
