"""What a process takes from the world around it: clocks, randomness, identities.

Owns: the real ones, and the shape in which a simulation hands in its own.  Must not know who asks.
Code that runs in the simulation (control plane, brokers, clients) reads clocks and randomness here
and nowhere else; ``tests/lint/test_surroundings.py`` holds that.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEnvironment:
    """``wall_ms``: milliseconds since the epoch.  ``monotonic_ms``: from anywhere, never back."""

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    new_id: Callable[[], UUID]
    random_bytes: Callable[[int], bytes]

    def new_random(self) -> random.Random:
        """A source of choices that need no secrecy, such as which node to ask first."""
        return random.Random(self.random_bytes(16))


SYSTEM: Final = RuntimeEnvironment(
    wall_ms=lambda: time.time_ns() // 1_000_000,
    monotonic_ms=lambda: time.monotonic_ns() // 1_000_000,
    new_id=uuid4,
    random_bytes=os.urandom,
)


def clock_s() -> float:
    """The clock of deadlines, in seconds: the running loop's, which on a real loop is the system's
    monotonic one; outside of loops the same."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
