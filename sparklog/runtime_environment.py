"""The runtime environment of a process: clocks, randomness, identities.

Owns: the real environment, and the interface through which a simulation supplies its own.  Must not
know which code uses it.  Code that runs in the simulation (control plane, brokers, clients) gets
clocks and randomness from here only; ``tests/lint/test_surroundings.py`` checks that.
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
    """Clocks and sources of randomness.

    ``wall_ms`` is in milliseconds since the epoch.  ``monotonic_ms`` is in milliseconds since an
    arbitrary moment, and never goes back.
    """

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    new_id: Callable[[], UUID]
    random_bytes: Callable[[int], bytes]

    def new_random(self) -> random.Random:
        """A generator for choices that need no secrecy, such as which node to ask first."""
        return random.Random(self.random_bytes(16))


SYSTEM: Final = RuntimeEnvironment(
    wall_ms=lambda: time.time_ns() // 1_000_000,
    monotonic_ms=lambda: time.monotonic_ns() // 1_000_000,
    new_id=uuid4,
    random_bytes=os.urandom,
)


def clock_s() -> float:
    """The clock of deadlines, in seconds.

    That is the clock of the running event loop; outside of a loop it is the system's monotonic
    clock, which real loops use as well.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
