"""Answers that wait for a partition to change: delayed fetches and parked acknowledgements.

Owns: who waits for which key, and the deadlines.  A waiter is asked whenever one of its keys is
woken, and told when its time is up; either way it is forgotten as soon as it has answered.  Must
not know what is waited for.
"""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
KeyT_contra = TypeVar("KeyT_contra", bound=Hashable, contravariant=True)

#: Waiters at once; one more is expired at once, which answers it with what there is.
WAITERS_MAX = 100_000


class Waiter(Protocol[KeyT_contra]):
    """A delayed operation.  Neither method may raise."""

    def look(self, key: KeyT_contra, size: int) -> bool:
        """``key`` changed (``size``: bytes that came with it); True when this has answered."""

    def expire(self) -> None:
        """Answer now, with what there is."""


class _Parked(Generic[KeyT]):
    __slots__ = ("keys", "timer", "waiter")

    def __init__(self, waiter: Waiter[KeyT], keys: tuple[KeyT, ...]) -> None:
        self.waiter = waiter
        self.keys = keys
        self.timer: asyncio.TimerHandle | None = None


class Purgatory(Generic[KeyT]):
    """Waiters by key."""

    def __init__(self, *, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._by_key: dict[KeyT, dict[_Parked[KeyT], None]] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def park(self, waiter: Waiter[KeyT], keys: Iterable[KeyT], timeout_s: float) -> None:
        """Ask ``waiter`` again when one of ``keys`` is woken, at the latest after ``timeout_s``."""
        if self._closed or self._count >= self._waiters_max or timeout_s <= 0:
            waiter.expire()
            return
        parked = _Parked(waiter, tuple(keys))
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        self._count += 1
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(timeout_s, self._expire, parked)

    def wake(self, key: KeyT, size: int = 0) -> None:
        """Ask everybody who waits for ``key``."""
        for parked in list(self._by_key.get(key, ())):
            if parked.waiter.look(key, size):
                self._forget(parked)

    def close(self) -> None:
        """Expire everybody; whoever comes later is expired at once."""
        self._closed = True
        while self._by_key:
            self._expire(next(iter(next(iter(self._by_key.values())))))

    def check_invariants(self) -> None:
        waiting = {parked for group in self._by_key.values() for parked in group}
        assert all(self._by_key.values())
        assert len(waiting) == self._count

    def _expire(self, parked: _Parked[KeyT]) -> None:
        self._forget(parked)
        parked.waiter.expire()

    def _forget(self, parked: _Parked[KeyT]) -> None:
        if parked.timer is None:
            return
        parked.timer.cancel()
        parked.timer = None
        self._count -= 1
        for key in set(parked.keys):
            group = self._by_key[key]
            del group[parked]
            if not group:
                del self._by_key[key]
