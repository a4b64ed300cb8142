"""The scheduler of sliced work on a server's event loop.

Owns: the queues of sliced work, and the amount of work before the loop serves other events.  Must
not know connections, or the purpose of the work.

One turn of the loop runs one slice of a member's work and one slice of a client's work, each of
about ``TURN_UNITS``.  It also resumes one connection that paused after its turn with requests left.
Then the loop serves everything that has arrived meanwhile.  So heartbeats and elections wait for at
most three slices, however many long requests there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sparklog.slices import Slices

#: Units of work (see ``sparklog.slices``) of one turn.
TURN_UNITS: Final = 4_000
#: Requests in slices that run at a time, of clients and of members each; others wait undecoded.
SLICED_REQUESTS_MAX: Final = 16


class Work:
    """Sliced work, and the callback for its end."""

    __slots__ = ("_cancelled", "_done", "_running", "_slices", "error", "result")

    def __init__(self, slices: Slices[Any], done: "Callable[[Work], None]") -> None:
        #: One of these two is set when the work has ended.
        self.result: Any = None
        self.error: BaseException | None = None
        self._slices = slices
        self._done = done
        self._cancelled = False
        self._running = False

    def run(self, units: int) -> bool:
        """Run slices of about ``units``.  Returns whether there is more to do."""
        if self._cancelled:
            self._slices.close()
            return False
        self._running = True
        try:
            while units > 0:
                units -= next(self._slices)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.error = error
        else:
            return True
        finally:
            self._running = False
        if not self._cancelled:
            self._done(self)
        return False

    def cancel(self) -> None:
        """Stop without the callback and release the slices, even before the first turn."""
        self._cancelled = True
        if not self._running:
            self._slices.close()


class _RunQueue:
    """Work of one kind; at most ``active_max`` at a time takes turns, the rest waits."""

    def __init__(self, active_max: int | None) -> None:
        self._active_max = active_max
        self._active: deque[Work] = deque()
        self._waiting: deque[Work] = deque()

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting)

    def add(self, work: Work) -> None:
        if self._active_max is None or len(self._active) < self._active_max:
            self._active.append(work)
        else:
            self._waiting.append(work)

    def run_one(self) -> None:
        if not self._active:
            return
        work = self._active.popleft()
        goes_on = False
        try:
            goes_on = work.run(TURN_UNITS)
        finally:
            if goes_on:
                self._active.append(work)
            elif self._waiting:
                self._active.append(self._waiting.popleft())


class SliceScheduler:
    """The sliced work of one server."""

    def __init__(self) -> None:
        self._members = _RunQueue(SLICED_REQUESTS_MAX)
        self._clients = _RunQueue(SLICED_REQUESTS_MAX)
        self._connections = _RunQueue(None)
        self._wanted = False

    def __len__(self) -> int:
        """The number of pieces of work that take turns or wait."""
        return len(self._members) + len(self._clients) + len(self._connections)

    def add(self, slices: Slices[Any], done: Callable[[Work], None], *, member: bool) -> Work:
        """Run work in turn with other work; the loop calls ``done`` with it at the end."""
        work = Work(slices, done)
        (self._members if member else self._clients).add(work)
        self._want_turn()
        return work

    def add_pause(self, done: Callable[[Work], None]) -> Work:
        """Let a connection wait until others have had a turn; then ``done`` is called."""
        work = Work(_nothing(), done)
        self._connections.add(work)
        self._want_turn()
        return work

    def _want_turn(self) -> None:
        if not self._wanted:
            self._wanted = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._wanted = False
        try:
            for lane in (self._members, self._clients, self._connections):
                lane.run_one()
        finally:
            if len(self):
                self._want_turn()


def _nothing() -> Slices[None]:
    yield from ()
