"""Responses that are completed later, and the place of each in the order of a connection.

Owns: the state of one response.  Must not know sockets, or how the response is made.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sparklog.slices import Slices
from sparklog.transport.send_queue import EncodedResponse


@dataclass(frozen=True, slots=True)
class SlicedResponse:
    """A response that is made in slices, in turn with everything else that a server does.

    The slices end with a response, and the connection handles no further request until then.  The
    frame of the request does not stay valid, so the slices own the bytes that they read.
    ``request_bytes`` is the size of these bytes, which counts as memory of requests.
    """

    slices: Slices[Any]
    request_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ParkedResponse:
    """A response that is made when ``awaitable`` ends.

    ``finish`` is called with the finished future of ``awaitable``; it must not raise.
    """

    awaitable: Awaitable[Any]
    finish: "Callable[[asyncio.Future[Any]], EncodedResponse | SlicedResponse | None]"


class PendingResponse:
    """A response that is completed later, or waits behind such a response; cheaper than a future.

    A handler returns a pending response and calls ``complete`` once, at any time.  When the
    connection ends before, the call may be left out.
    """

    __slots__ = ("completed", "future", "on_completed", "reply")

    def __init__(self, reply: EncodedResponse | None = None, *, completed: bool = False) -> None:
        self.reply = reply
        self.completed = completed
        #: The future that completes the response: asyncio itself keeps only a weak reference.
        self.future: asyncio.Future[Any] | None = None
        #: Set by the response queue of the connection.
        self.on_completed: Callable[[PendingResponse], None] | None = None

    def complete(self, reply: EncodedResponse | None) -> None:
        """Complete the response; None sends nothing."""
        assert not self.completed, "a response is given once"
        self.reply, self.completed = reply, True
        if self.on_completed is not None:
            self.on_completed(self)
