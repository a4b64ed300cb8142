"""A hierarchical timing wheel: many deadlines, of which most are cancelled before their time.

Owns: which entries are due.  Must not know clocks, loops or the purpose of an entry.

Adding and cancelling cost the same however many entries there are.  An entry lies in a bucket that
spans one tick.  An entry farther away than a wheel reaches lies in the wheel above, whose tick is
the whole span of the wheel below; it comes down when the time of its bucket has come.  Kafka's
``TimingWheel`` works in the same way; its buckets wait in a queue too.  An entry is never due
early: deadlines are rounded up to a tick.
"""

import heapq
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class WheelEntry(Generic[ValueT]):
    """A value with a deadline.  It is ``waiting`` until it is due or cancelled."""

    __slots__ = ("_bucket", "deadline_ms", "value")

    def __init__(self, value: ValueT, deadline_ms: int) -> None:
        self.value = value
        self.deadline_ms = deadline_ms
        self._bucket: dict[WheelEntry[ValueT], None] | None = None

    @property
    def waiting(self) -> bool:
        return self._bucket is not None


class TimingWheel(Generic[ValueT]):
    """Entries by deadline, in milliseconds of a clock that starts anywhere."""

    def __init__(self, now_ms: int, *, tick_ms: int = 1, ticks: int = 64) -> None:
        assert tick_ms > 0, tick_ms
        assert ticks > 1, ticks
        self._tick_ms = tick_ms
        self._ticks = ticks
        self._now_ms = now_ms
        self._count = 0
        #: Entries by wheel (0 is the finest) and number of its tick since the clock's zero.
        self._buckets: dict[tuple[int, int], dict[WheelEntry[ValueT], None]] = {}
        #: The time of each bucket, its wheel and its tick, as a heap.  Emptied buckets are removed
        #: when they come to the top.
        self._order: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def next_ms(self) -> int | None:
        """The time at which ``advance`` must be called next; None when no entry waits."""
        order = self._order
        while order:
            at_ms, wheel, tick = order[0]
            if self._buckets[wheel, tick]:
                return at_ms
            heapq.heappop(order)
            del self._buckets[wheel, tick]
        return None

    def add(self, value: ValueT, deadline_ms: int) -> WheelEntry[ValueT]:
        """Add a value.  If its deadline has passed, it is due at the next ``advance``."""
        rounded_ms = -(-deadline_ms // self._tick_ms) * self._tick_ms
        entry = WheelEntry(value, rounded_ms)
        self._place(entry)
        self._count += 1
        return entry

    def cancel(self, entry: WheelEntry[ValueT]) -> bool:
        """Cancel an entry.  Return False when it was due or cancelled before."""
        if entry._bucket is None:
            return False
        del entry._bucket[entry]
        entry._bucket = None
        self._count -= 1
        return True

    def advance(self, now_ms: int) -> list[WheelEntry[ValueT]]:
        """Take out and return the entries that are due at ``now_ms``, soonest first."""
        self._now_ms = max(self._now_ms, now_ms)
        due: list[WheelEntry[ValueT]] = []
        while self._order and self._order[0][0] <= now_ms:
            _, wheel, tick = heapq.heappop(self._order)
            for entry in self._buckets.pop((wheel, tick)):
                if entry.deadline_ms <= now_ms:
                    entry._bucket = None
                    due.append(entry)
                else:
                    self._place(entry)
        self._count -= len(due)
        # Buckets of upper wheels hold entries in the order in which they were added.
        due.sort(key=_deadline)
        return due

    def check_invariants(self) -> None:
        held = [entry for bucket in self._buckets.values() for entry in bucket]
        assert len(held) == self._count
        assert all(entry._bucket is not None and entry in entry._bucket for entry in held)
        assert sorted((wheel, tick) for _, wheel, tick in self._order) == sorted(self._buckets)

    def _place(self, entry: WheelEntry[ValueT]) -> None:
        wheel, tick_ms = 0, self._tick_ms
        while entry.deadline_ms // tick_ms >= self._now_ms // tick_ms + self._ticks:
            wheel, tick_ms = wheel + 1, tick_ms * self._ticks
        tick = entry.deadline_ms // tick_ms
        bucket = self._buckets.get((wheel, tick))
        if bucket is None:
            bucket = self._buckets[wheel, tick] = {}
            heapq.heappush(self._order, (tick * tick_ms, wheel, tick))
        bucket[entry] = None
        entry._bucket = bucket


def _deadline(entry: WheelEntry[ValueT]) -> int:
    return entry.deadline_ms
