"""Timers that are set again far more often than they are due.

Owns: a heap in which a timer has one entry.  Setting a timer to a later time changes only the
timer: its entry finds out when it comes to the top.  So a heartbeat costs no work on the heap.
Must not know what a timer is for.
"""

from heapq import heapify, heappop, heappush
from typing import Any

#: A heap with fewer entries than this is not rebuilt.
REBUILD_ENTRIES_MIN = 64


class Timer:
    """A deadline in monotonic milliseconds, or None; ``subject`` is for its owner."""

    __slots__ = ("deadline_ms", "entry_ms", "subject")

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.deadline_ms: int | None = None
        #: The time of the timer's valid entry in the heap; other entries of it are void.
        self.entry_ms: int | None = None


class TimerQueue:
    """The timers of one state machine."""

    __slots__ = ("_count", "_entries", "_void")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._void = 0

    def set(self, timer: Timer, deadline_ms: int) -> None:
        timer.deadline_ms = deadline_ms
        if timer.entry_ms is not None:
            if timer.entry_ms <= deadline_ms:
                return
            self._void += 1
        self._push(timer, deadline_ms)
        self._rebuild_if_void()

    def cancel(self, timer: Timer) -> None:
        timer.deadline_ms = None
        if timer.entry_ms is not None:
            timer.entry_ms = None
            self._void += 1
            self._rebuild_if_void()

    def take_due(self, now_ms: int) -> Timer | None:
        """The timer that is due first, which is no longer set; None if no timer is due."""
        while self._entries and self._entries[0][0] <= now_ms:
            entry_ms, _, timer = heappop(self._entries)
            if timer.entry_ms != entry_ms:
                self._void -= 1
                continue
            timer.entry_ms = None
            assert timer.deadline_ms is not None, "a timer with an entry is set"
            if timer.deadline_ms <= now_ms:
                timer.deadline_ms = None
                return timer
            self._push(timer, timer.deadline_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        """A time at or before the first deadline; None if no timer is set."""
        while self._entries and self._entries[0][2].entry_ms != self._entries[0][0]:
            heappop(self._entries)
            self._void -= 1
        return self._entries[0][0] if self._entries else None

    def __len__(self) -> int:
        """The number of entries, void ones included."""
        return len(self._entries)

    def _push(self, timer: Timer, entry_ms: int) -> None:
        timer.entry_ms = entry_ms
        self._count += 1
        heappush(self._entries, (entry_ms, self._count, timer))

    def _rebuild_if_void(self) -> None:
        """Bound the memory of void entries by that of the valid ones."""
        if len(self._entries) < REBUILD_ENTRIES_MIN or 2 * self._void < len(self._entries):
            return
        valid: dict[int, tuple[int, int, Timer]] = {}
        for entry in self._entries:
            if entry[2].entry_ms == entry[0]:
                valid[id(entry[2])] = entry
        self._entries = list(valid.values())
        heapify(self._entries)
        self._void = 0
