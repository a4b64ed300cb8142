"""The progress of a cleaning, which tells the broker that the cleaner's process does not hang.

Owns: how often progress is reported, also while the throttle waits.  Must not know how a report is
sent.
"""

from collections.abc import Callable
from typing import Final

#: The shortest time between two messages.
INTERVAL_S: Final = 1.0


class Progress:
    """Calls ``report`` with the bytes so far, at most once in INTERVAL_S."""

    def __init__(
        self,
        report: Callable[[int], None],
        *,
        clock_s: Callable[[], float],
        sleep_s: Callable[[float], None],
    ) -> None:
        self._report = report
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._reported_s = clock_s()
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count bytes that were read or written."""
        self._bytes += size
        now_s = self._clock_s()
        if now_s - self._reported_s >= INTERVAL_S:
            self._reported_s = now_s
            self._report(self._bytes)

    def sleep(self, seconds: float) -> None:
        """Wait for the throttle, and report progress meanwhile."""
        while seconds > 0:
            part_s = min(seconds, INTERVAL_S)
            self._sleep_s(part_s)
            self.add(0)
            seconds -= part_s
