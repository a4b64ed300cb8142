"""The place of one answer in the order of a connection's answers, and answers that come later.

Owns: what is known of an answer.  Must not know sockets, or what makes the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sparklog.slices import Slices
from sparklog.transport.send_queue import Reply


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer that is made in slices, in turn with everything else that a server does.

    The slices end with an answer, and the connection handles no further request until then.  The
    frame of the request does not stay valid: whoever makes the slices owns what they read.
    ``request_bytes`` is the size of that, which counts as memory of requests.
    """

    slices: Slices[Any]
    request_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Parked:
    """An answer that is not known yet.

    ``finish`` is called with the finished future of ``awaitable``; it must not raise.
    """

    awaitable: Awaitable[Any]
    finish: "Callable[[asyncio.Future[Any]], Reply | LongAnswer | None]"


class PendingResponse:
    """An answer that is given later, or that waits behind one; cheaper than a future.

    A handler returns it, and calls ``give`` once, at any time; it may never do so when the
    connection ends before.
    """

    __slots__ = ("completed", "future", "on_completed", "reply")

    def __init__(self, reply: Reply | None = None, *, completed: bool = False) -> None:
        self.reply = reply
        self.completed = completed
        #: What it waits for; a task needs somebody who holds it.
        self.future: asyncio.Future[Any] | None = None
        #: Set by the connection that owes it.
        self.on_completed: Callable[[PendingResponse], None] | None = None

    def complete(self, reply: Reply | None) -> None:
        """Here it is; None: none after all."""
        assert not self.completed, "an answer is given once"
        self.reply, self.completed = reply, True
        if self.on_completed is not None:
            self.on_completed(self)
