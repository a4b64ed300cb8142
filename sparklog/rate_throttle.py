"""The pace of work that reads or writes many bytes.

Owns: the wait after some bytes.  Must not know the content of the bytes, or a clock of its own.
"""

from collections.abc import Callable


class RateThrottle:
    """Waits so that the mean rate since the start is not above ``bytes_per_second``.

    Work that was slower catches up the bytes of its last ``burst_s`` seconds at most.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        burst_s: float = float("inf"),
        clock_s: Callable[[], float],
        sleep_s: Callable[[float], None],
    ) -> None:
        self._rate = bytes_per_second
        self._burst_s = burst_s
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._began_s = clock_s()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        """Count bytes that were read or written, and wait."""
        self._bytes += size
        ahead_s = self._bytes / self._rate - (self._clock_s() - self._began_s)
        if ahead_s > 0:
            self._sleep_s(ahead_s)
        elif -ahead_s > self._burst_s:
            self._began_s += -ahead_s - self._burst_s
