"""Blocking work that can stand still in the middle, as work in a thread does.

Owns: threads of which exactly one runs at a time, the loop's or one fiber's, and the hand-over
between them.  Must not know what the work is or when it goes on.
"""

import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

#: The fiber that the running code is part of.
FIBER: ContextVar["Fiber | None"] = ContextVar("fiber", default=None)


class Fiber:
    """One piece of work.  ``resume`` runs it until it parks or ends.

    Only one that may be ``sliced`` can park; it takes a thread until it ends.
    """

    def __init__(self, work: Callable[[], Any], context: Context, *, sliced: bool) -> None:
        self.ended = False
        self.sliced = sliced
        #: Seconds that it was held up by a slow disk and has not stood still for yet.
        self.owed_s = 0.0
        #: When (in seconds of the loop) it has taken the locks that it holds, the oldest first.
        self.locked_s: list[float] = []
        self.result: Any = None
        self.failure: BaseException | None = None
        self._work = work
        self._context = context
        self._thread: _Thread | None = None

    def resume(self) -> bool:
        """Go on; whether it has ended now.  Called by the loop."""
        if not self.sliced:
            self.run()
            return True
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.fiber = self
        thread = self._thread
        thread.go.release()
        thread.back.acquire()
        if self.ended:
            self._thread = None
            _idle.append(thread)
        return self.ended

    def park(self) -> None:
        """Stand still until ``resume``.  Called by the work."""
        assert self._thread is not None
        self._thread.back.release()
        self._thread.go.acquire()

    def run(self) -> None:
        try:
            self.result = self._context.run(self._run)
        except BaseException as failure:
            self.failure = failure
        self.ended = True

    def _run(self) -> Any:
        FIBER.set(self)
        return self._work()


class _Thread(threading.Thread):
    """Runs fibers one after the other; locks are its turns."""

    def __init__(self) -> None:
        super().__init__(name="simulated-work", daemon=True)
        self.fiber: Fiber
        self.go = threading.Lock()
        self.back = threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            self.fiber.run()
            self.back.release()


#: Threads that wait for a fiber, whichever world it is of.
_idle: list[_Thread] = []
