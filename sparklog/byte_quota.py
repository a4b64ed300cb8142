"""A quota for the bytes of work that can be put off: a rate, and a burst after a pause.

Owns: how many bytes are left, and when there are some again.  Must not know clocks, or what the
bytes are.
"""

from typing import Final

#: A quota that is not used saves up the bytes of this time for a burst.
BURST_MS: Final = 1_000


class ByteQuota:
    """A token bucket that fills with ``rate`` bytes per second.

    It begins with the bytes of BURST_MS.  The last work before the bucket is empty may take more
    bytes than the bucket holds.

    Args:
        burst_ms: a quota that is not used saves up the bytes of this time.
    """

    def __init__(self, rate: int, now_ms: int, *, burst_ms: int = BURST_MS) -> None:
        self.rate = rate
        self._burst_ms = burst_ms
        self._left_millibytes = rate * min(burst_ms, BURST_MS)
        self._filled_ms = now_ms

    def set_rate(self, rate: int, now_ms: int) -> None:
        """Use a new rate from now on.  Bytes that are saved up are limited by the new rate."""
        if rate == self.rate:
            return
        self._fill(now_ms)
        self.rate = rate
        self._left_millibytes = min(self._left_millibytes, rate * self._burst_ms)

    def record(self, size: int, now_ms: int) -> None:
        """Count ``size`` bytes of work that was done."""
        self._fill(now_ms)
        self._left_millibytes -= size * 1000

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the quota is used up, so that nothing may be begun now."""
        self._fill(now_ms)
        return self._left_millibytes <= 0

    def wait_ms(self, now_ms: int, pending: int = 0) -> int | None:
        """The time in ms until the quota is not exceeded any more; None for a rate of 0.

        ``pending`` are the bytes of work that was begun and is not recorded yet.
        """
        self._fill(now_ms)
        left = self._left_millibytes - pending * 1000
        if left > 0:
            return 0
        return 1 - left // self.rate if self.rate else None

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._filled_ms, 0)
        self._filled_ms = max(now_ms, self._filled_ms)
        self._left_millibytes = min(
            self._left_millibytes + passed_ms * self.rate, self.rate * self._burst_ms
        )
