"""Answers that wait for something to change: delayed fetches, parked acknowledgements, deletions.

Owns: who waits for which key, how long, and for whom.  A waiter is asked whenever one of its keys
is woken, told when its time is up, and dropped when nobody is left to take its answer; it is
forgotten as soon as one of these has ended it.  Must not know what is waited for.
"""

from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from sparklog.executors.purgatory.timer import Timer, Timers

KeyT = TypeVar("KeyT", bound=Hashable)
KeyT_contra = TypeVar("KeyT_contra", bound=Hashable, contravariant=True)

#: Waiters at once; one more is expired at once, which answers it with what there is.
WAITERS_MAX = 100_000
#: Keys of all waiters together, because each takes memory; a waiter with more is expired at once.
KEYS_MAX = 250_000


class Waiter(Protocol[KeyT_contra]):
    """A delayed operation.  None of the methods may raise."""

    def look(self, key: KeyT_contra, size: int) -> bool:
        """``key`` changed (``size``: bytes that came with it); True when this has answered."""

    def expire(self) -> None:
        """Answer now, with what there is."""

    def drop(self) -> None:
        """Nobody takes the answer any more."""


class _Parked(Generic[KeyT]):
    __slots__ = ("keys", "owner", "purgatory", "timer", "waiter")

    def __init__(
        self,
        purgatory: "Purgatory[KeyT]",
        waiter: Waiter[KeyT],
        keys: tuple[KeyT, ...],
        owner: "Owner | None",
    ) -> None:
        self.purgatory = purgatory
        self.waiter = waiter
        self.keys = keys
        self.owner = owner
        self.timer: Timer | None = None


class Owner:
    """Whom answers are for.  Its waiters are dropped when it leaves."""

    def __init__(self) -> None:
        self.left = False
        self._parked: dict[_Parked[Any], None] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def leave(self) -> None:
        """Drop everything that waits for this owner, or that will."""
        self.left = True
        for parked in list(self._parked):
            parked.purgatory.drop(parked)

    def hurry(self, purgatory: "Purgatory[Any]") -> None:
        """Expire what waits for this owner in one purgatory."""
        for parked in list(self._parked):
            if parked.purgatory is purgatory:
                purgatory.expire(parked)


class Purgatory(Generic[KeyT]):
    """Waiters by key."""

    def __init__(
        self, timers: Timers, *, waiters_max: int = WAITERS_MAX, keys_max: int = KEYS_MAX
    ) -> None:
        self._timers = timers
        self._waiters_max = waiters_max
        self._keys_max = keys_max
        self._by_key: dict[KeyT, dict[_Parked[KeyT], None]] = {}
        self._count = 0
        self._keys = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def park(
        self,
        waiter: Waiter[KeyT],
        keys: Iterable[KeyT],
        timeout_s: float,
        owner: Owner | None = None,
    ) -> None:
        """Ask ``waiter`` again when one of ``keys`` is woken, at the latest after ``timeout_s``."""
        if self._closed or self._count >= self._waiters_max or timeout_s <= 0:
            waiter.expire()
            return
        if owner is not None and owner.left:
            waiter.drop()
            return
        parked = _Parked(self, waiter, tuple(keys), owner)
        if self._keys + len(parked.keys) > self._keys_max:
            waiter.expire()
            return
        self._keys += len(parked.keys)
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        self._count += 1
        parked.timer = self._timers.call_later(timeout_s, partial(self.expire, parked))
        if owner is not None:
            owner._parked[parked] = None

    def wake(self, key: KeyT, size: int = 0) -> None:
        """Ask everybody who waits for ``key``."""
        group = self._by_key.get(key)
        if group is None:
            return
        for parked in list(group):
            if parked.timer is not None and parked.waiter.look(key, size):
                self._forget(parked)

    def wake_all(self) -> None:
        """Ask everybody, about each of their keys."""
        for key in list(self._by_key):
            self.wake(key)

    def close(self) -> None:
        """Expire everybody; whoever comes later is expired at once."""
        self._closed = True
        while self._by_key:
            self.expire(next(iter(next(iter(self._by_key.values())))))

    def expire(self, parked: _Parked[KeyT]) -> None:
        """Its time is up, unless it was ended in the same turn of the loop."""
        if self._forget(parked):
            parked.waiter.expire()

    def drop(self, parked: _Parked[KeyT]) -> None:
        if self._forget(parked):
            parked.waiter.drop()

    def check_invariants(self) -> None:
        waiting = {parked for group in self._by_key.values() for parked in group}
        assert all(self._by_key.values())
        assert len(waiting) == self._count
        assert sum(len(parked.keys) for parked in waiting) == self._keys
        assert all(parked.timer is not None for parked in waiting)
        assert all(p.owner is None or p in p.owner._parked for p in waiting)

    def _forget(self, parked: _Parked[KeyT]) -> bool:
        """False when it was forgotten before."""
        if parked.timer is None:
            return False
        self._timers.cancel(parked.timer)
        parked.timer = None
        self._count -= 1
        self._keys -= len(parked.keys)
        if parked.owner is not None:
            del parked.owner._parked[parked]
        for key in set(parked.keys):
            group = self._by_key[key]
            del group[parked]
            if not group:
                del self._by_key[key]
        return True
