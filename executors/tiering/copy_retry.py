"""When a partition whose copy has failed is copied again.

Owns: the back-off of one partition.  Must not know why a copy failed, or the clock.
"""

from dataclasses import dataclass
from typing import Final

#: The longest pause in milliseconds, unless the interval of the looks is longer.
RETRY_MS_MAX: Final = 300_000


@dataclass(slots=True)
class CopyRetry:
    """``failures`` are the copies that have failed in a row."""

    failures: int = 0
    _not_before_ms: int = 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self._not_before_ms

    def copied(self) -> None:
        """A copy was made."""
        self.failures = self._not_before_ms = 0

    def failed(self, now_ms: int, interval_ms: int) -> None:
        """A copy has failed.  The next look tries again, later ones pass the partition by for
        twice as long after each failure."""
        pause_ms = interval_ms * ((1 << min(self.failures, 32)) - 1)
        self.failures += 1
        self._not_before_ms = now_ms + min(pause_ms, max(interval_ms, RETRY_MS_MAX))
