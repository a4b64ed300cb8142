"""The limit of the rate at which a broker reads the bucket for fetches (KIP-956).

Owns: the bytes that were read, those of the reads that were begun, and how long the next read has
to wait.  Must not know what is read, or how.

Source: ``RLMQuotaManager`` of Kafka, which averages over windows.  Here the bytes of a pause are
saved up, for as long as those windows.  As in Kafka, a read begins while the limit is not reached,
whatever its size, so that a batch above the limit comes too.
"""

from collections.abc import Callable
from typing import Final

from sparklog.byte_quota import BURST_MS, ByteQuota
from sparklog.types import MAX_INT64

#: Longest time until the limit, which may have changed, is read again.
CHECK_MS: Final = 1_000


class FetchQuota:
    """The quota of one broker.

    Args:
        limit: the present limit in bytes per second; MAX_INT64 for none.
        burst_ms: the bytes of this time are saved up.
        monotonic_ms: a clock, which is read only while there is a limit.
        bytes_fetched: all bytes that a cache has read from the bucket; None if there is no cache,
            and every read counts.
    """

    def __init__(
        self,
        limit: Callable[[], int] = lambda: MAX_INT64,
        *,
        burst_ms: int = BURST_MS,
        monotonic_ms: Callable[[], int] = lambda: 0,
        bytes_fetched: Callable[[], int] | None = None,
    ) -> None:
        self._limit = limit
        self._burst_ms = burst_ms
        self._monotonic_ms = monotonic_ms
        self._bytes_fetched = bytes_fetched
        #: None without a limit.
        self._quota: ByteQuota | None = None
        #: Bytes that the reads which were begun are expected to have.
        self._pending = 0
        #: ``bytes_fetched`` when it was last counted.
        self._counted = 0

    def wait_ms(self) -> int:
        """The time in ms until a read may begin; then ask again.  0: it may begin now."""
        limit = self._limit()
        if limit == MAX_INT64:
            self._quota = None
            return 0
        now_ms = self._monotonic_ms()
        if self._quota is None:
            self._quota = ByteQuota(limit, now_ms, burst_ms=self._burst_ms)
            self._counted = self._fetched()
        self._quota.set_rate(limit, now_ms)
        fetched = self._fetched()
        self._quota.record(fetched - self._counted, now_ms)
        self._counted = fetched
        found = self._quota.wait_ms(now_ms, self._pending)
        return CHECK_MS if found is None else min(found, CHECK_MS)

    def begin(self, size: int) -> None:
        """A read is begun that is expected to have ``size`` bytes."""
        self._pending += size

    def end(self, size: int, read: int) -> None:
        """A read that was expected to have ``size`` bytes has ended with ``read`` bytes."""
        self._pending -= size
        if self._quota is not None and self._bytes_fetched is None:
            self._quota.record(read, self._monotonic_ms())

    def now_ms(self) -> int:
        """The clock's time, while there is a limit."""
        return self._monotonic_ms()

    def _fetched(self) -> int:
        return 0 if self._bytes_fetched is None else self._bytes_fetched()
