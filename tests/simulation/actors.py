"""A simulated process: whose a callback is, and whether it may run.

Owns: the queue of one process's ready callbacks, its life (running, held, dead) and what keeps a
dead one's coroutines from ever running again.  Must not know time, network or disks.

Which process code belongs to is in a context variable, which tasks and callbacks inherit.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

NODE: ContextVar["Node"] = ContextVar("node")


class Killed(BaseException):
    """What a dead process's code meets when it touches the world, and who waits for it."""


class Node:
    """One process on a host.  The loop it runs on decides when its callbacks run."""

    def __init__(self, name: str, host: str = "") -> None:
        self.name = name
        self.host = host or name
        self.dead = False
        self.ready: deque[asyncio.Handle] = deque()
        #: Whether the loop has it in its list of those that can go on.
        self.listed = False
        #: Reasons not to run now: paused, waiting for a slow disk.
        self.holds = 0
        self.busy_until = 0.0
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        #: After death: everything whose end would run code of this process.
        self.buried: list[object] = []
        self.context: Context = copy_context()
        self.context.run(NODE.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.dead else "held" if self.holds else "running"
        return f"<{self.name}, {state}>"

    def spawn(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]
    ) -> "asyncio.Task[T]":
        """Run a coroutine as this process."""
        return loop.create_task(coroutine, context=self.context.copy())

    def bury(self) -> None:
        """Nothing of it runs any more; its coroutines stay suspended where they are."""
        self.dead = True
        self.buried += self.ready
        self.buried += self.tasks
        self.ready.clear()


def current_node() -> Node | None:
    """The process that the running code belongs to."""
    return NODE.get(None)


def close_coroutines(nodes: list[Node]) -> None:
    """At the end of the world: unwind what is suspended, with every door to the world closed."""
    grave = Node("grave")
    grave.bury()
    for node in nodes:
        for task in node.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                grave.context.run(_unwind, task.get_coro())
        node.buried.clear()


def _unwind(coroutine: Any) -> None:
    """Close it from the inside out, again for each ``finally`` that awaits something."""
    for _ in range(1000):
        if coroutine.cr_frame is None:
            return
        innermost = coroutine
        while getattr(getattr(innermost, "cr_await", None), "cr_frame", None) is not None:
            innermost = innermost.cr_await
        with suppress(BaseException):  # whatever unwinding meets, the world is over
            innermost.close()


def waiting_places(nodes: list[Node]) -> list[str]:
    """Where the tasks of these processes wait, one line each, sorted."""
    places = []
    for node in nodes:
        for task in node.tasks:
            frames = task.get_stack(limit=None)
            if not task.done() and frames:
                places.append(f"{node!r}: {_innermost(task.get_coro())}")
    return sorted(places)


def _innermost(coroutine: Any) -> str:
    """``function (file:line)`` of the deepest coroutine that is known."""
    while getattr(coroutine, "cr_await", None) is not None:
        below = coroutine.cr_await
        if getattr(below, "cr_frame", None) is None:
            break
        coroutine = below
    frame = coroutine.cr_frame
    where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame else "?"
    return f"{coroutine.__qualname__} ({where})"
