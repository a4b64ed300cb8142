"""The place of one answer in the order of a connection's answers.

Owns: what is known of it.  Must not know sockets, or what makes the answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from sparklog.transport.outbox import Reply


class Owed:
    """An answer that is given later, or that waits behind one; cheaper than a future.

    A handler returns it, and calls ``give`` once, at any time; it may never do so when the
    connection ends before.
    """

    __slots__ = ("future", "known", "on_given", "reply")

    def __init__(self, reply: Reply | None = None, *, known: bool = False) -> None:
        self.reply = reply
        self.known = known
        #: What it waits for; a task needs somebody who holds it.
        self.future: asyncio.Future[Any] | None = None
        #: Set by the connection that owes it.
        self.on_given: Callable[[Owed], None] | None = None

    def give(self, reply: Reply | None) -> None:
        """Here it is; None: none after all."""
        assert not self.known, "an answer is given once"
        self.reply, self.known = reply, True
        if self.on_given is not None:
            self.on_given(self)
