"""One timer of the event loop for the next deadline of a state machine.

Owns: when the timer fires.  Must not know what a deadline is for.
"""

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls ``fire`` at a deadline on the clock ``monotonic_ms``, or a little later."""

    def __init__(self, monotonic_ms: Callable[[], int], fire: Callable[[], None]) -> None:
        self._monotonic_ms = monotonic_ms
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0

    def arm(self, deadline_ms: int | None) -> None:
        """Fire at this deadline at the latest; None changes nothing.

        A timer that was armed for an earlier time stays as it is: most deadlines move away, as
        sessions are renewed, and a timer that fires for nothing costs less than many new timers.
        """
        if deadline_ms is None or (self._handle is not None and self._deadline_ms <= deadline_ms):
            return
        self.cancel()
        delay_ms = max(deadline_ms - self._monotonic_ms(), 1)
        self._deadline_ms = deadline_ms
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fired(self) -> None:
        self._handle = None
        self._fire()
