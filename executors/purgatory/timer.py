"""One timer of the event loop for all deadlines of a broker.

Owns: the timing wheel's clock (the loop's), and the one timer, armed for the next deadline only.
Must not know the purpose of a deadline.
"""

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

from sparklog.executors.purgatory.timing_wheel import TimingWheel, WheelEntry

Timer: TypeAlias = WheelEntry[Callable[[], None]]

#: How late a timer may be, apart from the loop itself.
TICK_MS = 1


class Timers:
    """Callbacks at deadlines, on one loop.  Without deadlines the loop has no timer."""

    def __init__(self) -> None:
        self._wheel: TimingWheel[Callable[[], None]] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = 0

    def __len__(self) -> int:
        return 0 if self._wheel is None else len(self._wheel)

    @property
    def armed(self) -> bool:
        """Whether the loop holds the timer of this object."""
        return self._handle is not None

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, in ``delay_s`` seconds or a little later, never earlier."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if self._wheel is None:
            self._wheel = TimingWheel(int(now_s * 1000), tick_ms=TICK_MS)
        timer = self._wheel.add(callback, math.ceil((now_s + delay_s) * 1000))
        if self._handle is None or timer.deadline_ms < self._armed_ms:
            self._arm(loop, self._wheel)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a timer; one that has fired stays fired."""
        assert self._wheel is not None
        if self._wheel.cancel(timer) and not self._wheel and self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, loop: asyncio.AbstractEventLoop, wheel: TimingWheel[Callable[[], None]]) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        next_ms = wheel.next_ms
        if next_ms is not None:
            self._armed_ms = next_ms
            self._handle = loop.call_at(next_ms / 1000, self._fire)

    def _fire(self) -> None:
        wheel, loop = self._wheel, asyncio.get_running_loop()
        assert wheel is not None
        self._handle = None
        # The loop fires up to its clock's resolution early; that counts as the armed time.
        due = wheel.advance(max(int(loop.time() * 1000), self._armed_ms))
        for timer in due:
            loop.call_soon(timer.value)
        self._arm(loop, wheel)
