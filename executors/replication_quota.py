"""How fast replicas that are throttled may be copied (KIP-73).

Owns: which replicas of a topic are throttled, and the rate of one direction: what a leader sends to
followers, or what a follower fetches.  Must not know clocks, requests or logs.

Only copies that are not in sync are held back, else a reassignment would cost availability; but
whatever a throttled replica copies is counted.  ``spend`` what was copied; while the quota
``is_spent`` nothing more is to be sent or asked for, for ``wait_ms``.
"""

from collections.abc import Collection
from typing import Final

#: What may be saved up for a burst.
BURST_MS: Final = 1_000
#: In a topic's list: each of its replicas.
ALL_REPLICAS: Final = "*"


def is_throttled(listed: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a broker's replica is in a topic's ``leader.`` or
    ``follower.replication.throttled.replicas``."""
    return bool(listed) and (ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed)


class ReplicationQuota:
    """A bucket that fills with ``rate`` bytes a second, and may be overdrawn once."""

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._left_millibytes = rate * BURST_MS
        self._filled_ms = now_ms

    def set_rate(self, rate: int, now_ms: int) -> None:
        """A new rate holds from now on; a debt is paid at it, and what was saved is kept to it."""
        self._fill(now_ms)
        self.rate = rate
        self._left_millibytes = min(self._left_millibytes, rate * BURST_MS)

    def spend(self, size: int, now_ms: int) -> None:
        """Count bytes that were copied."""
        self._fill(now_ms)
        self._left_millibytes -= size * 1000

    def is_spent(self, now_ms: int) -> bool:
        """Whether nothing may be copied now."""
        self._fill(now_ms)
        return self._left_millibytes <= 0

    def wait_ms(self, now_ms: int) -> int | None:
        """How long the quota stays spent; None: until the rate changes."""
        self._fill(now_ms)
        if self._left_millibytes > 0:
            return 0
        return 1 - self._left_millibytes // self.rate if self.rate else None

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._filled_ms, 0)
        self._filled_ms = max(now_ms, self._filled_ms)
        self._left_millibytes = min(
            self._left_millibytes + passed_ms * self.rate, self.rate * BURST_MS
        )
