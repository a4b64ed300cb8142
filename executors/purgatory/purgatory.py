"""The purgatory: delayed operations that wait for a change of a key, or for their deadline.

Owns: the keys, the deadline and the connection of each operation that waits.  An operation is tried
again whenever one of its keys has changed.  It expires at its deadline, and is cancelled when its
owner has closed.  Each of these ends the wait once.  Must not know the meaning of keys and
operations.
"""

from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from sparklog.executors.purgatory.timer import Timer, Timers

KeyT = TypeVar("KeyT", bound=Hashable)
KeyT_contra = TypeVar("KeyT_contra", bound=Hashable, contravariant=True)

#: Operations that wait at the same time; a further operation expires at once.
OPERATIONS_MAX = 100_000
#: Keys of all operations together, because each key takes memory; an operation that would exceed
#: the limit expires at once.
KEYS_MAX = 250_000


class DelayedOperation(Protocol[KeyT_contra]):
    """A request whose answer waits.  None of the methods may raise."""

    def try_complete(self, key: KeyT_contra, size: int) -> bool:
        """Take a change of ``key``.  Return whether the operation has answered.

        ``size`` is the number of bytes that came with the change, 0 for a change of another kind.
        """

    def expire(self) -> None:
        """Answer now, because the deadline has passed."""

    def cancel(self) -> None:
        """End without an answer, because the client's connection is closed."""


class _Watched(Generic[KeyT]):
    """An operation that waits; ``timer`` is None before and after the wait."""

    __slots__ = ("keys", "operation", "owner", "purgatory", "timer")

    def __init__(
        self,
        purgatory: "Purgatory[KeyT]",
        operation: DelayedOperation[KeyT],
        keys: tuple[KeyT, ...],
        owner: "Owner | None",
    ) -> None:
        self.purgatory = purgatory
        self.operation = operation
        self.keys = keys
        self.owner = owner
        self.timer: Timer | None = None


class Owner:
    """The client for which operations wait.  They are cancelled when it closes."""

    def __init__(self) -> None:
        self.closed = False
        self._watched: dict[_Watched[Any], None] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def close(self) -> None:
        """Cancel the operations of this owner, also all later ones."""
        self.closed = True
        for watched in list(self._watched):
            watched.purgatory.cancel(watched)

    def expire(self, purgatory: "Purgatory[Any]") -> None:
        """Expire the operations of this owner in one purgatory."""
        for watched in list(self._watched):
            if watched.purgatory is purgatory:
                purgatory.expire(watched)


class Purgatory(Generic[KeyT]):
    """Operations by the keys that they wait for."""

    def __init__(
        self, timers: Timers, *, operations_max: int = OPERATIONS_MAX, keys_max: int = KEYS_MAX
    ) -> None:
        self._timers = timers
        self._operations_max = operations_max
        self._keys_max = keys_max
        self._by_key: dict[KeyT, dict[_Watched[KeyT], None]] = {}
        self._count = 0
        self._keys = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def watch(
        self,
        operation: DelayedOperation[KeyT],
        keys: Iterable[KeyT],
        timeout_s: float,
        owner: Owner | None = None,
    ) -> None:
        """Let ``operation`` wait for a change of one of ``keys``, at most ``timeout_s`` seconds.

        The operation expires at once when there is no room for it, and is cancelled at once when
        ``owner`` has closed.
        """
        if self._closed or self._count >= self._operations_max or timeout_s <= 0:
            operation.expire()
            return
        if owner is not None and owner.closed:
            operation.cancel()
            return
        watched = _Watched(self, operation, tuple(keys), owner)
        if self._keys + len(watched.keys) > self._keys_max:
            operation.expire()
            return
        self._keys += len(watched.keys)
        for key in watched.keys:
            self._by_key.setdefault(key, {})[watched] = None
        self._count += 1
        watched.timer = self._timers.call_later(timeout_s, partial(self.expire, watched))
        if owner is not None:
            owner._watched[watched] = None

    def check_and_complete(self, key: KeyT, size: int = 0) -> None:
        """Try the operations that wait for ``key``, which has changed by ``size`` bytes."""
        group = self._by_key.get(key)
        if group is None:
            return
        for watched in list(group):
            if watched.timer is not None and watched.operation.try_complete(key, size):
                self._forget(watched)

    def check_and_complete_all(self) -> None:
        """Try every operation, with each of its keys."""
        for key in list(self._by_key):
            self.check_and_complete(key)

    def close(self) -> None:
        """Expire every operation; later operations expire at once."""
        self._closed = True
        while self._by_key:
            self.expire(next(iter(next(iter(self._by_key.values())))))

    def expire(self, watched: _Watched[KeyT]) -> None:
        """Expire an operation at its deadline.  It may have ended in the same turn of the loop."""
        if self._forget(watched):
            watched.operation.expire()

    def cancel(self, watched: _Watched[KeyT]) -> None:
        if self._forget(watched):
            watched.operation.cancel()

    def check_invariants(self) -> None:
        waiting = {watched for group in self._by_key.values() for watched in group}
        assert all(self._by_key.values())
        assert len(waiting) == self._count
        assert sum(len(watched.keys) for watched in waiting) == self._keys
        assert all(watched.timer is not None for watched in waiting)
        assert all(p.owner is None or p in p.owner._watched for p in waiting)

    def _forget(self, watched: _Watched[KeyT]) -> bool:
        """End the wait.  Return False when it had ended before."""
        if watched.timer is None:
            return False
        self._timers.cancel(watched.timer)
        watched.timer = None
        self._count -= 1
        self._keys -= len(watched.keys)
        if watched.owner is not None:
            del watched.owner._watched[watched]
        for key in set(watched.keys):
            group = self._by_key[key]
            del group[watched]
            if not group:
                del self._by_key[key]
        return True
