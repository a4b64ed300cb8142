"""The responses of one connection, in the order of its requests.

Owns: pending responses, the completed responses that wait behind them, and the count of their
bytes.  Must not know sockets, requests, or how much a connection may hold.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from sparklog.transport.pending_response import PendingResponse
from sparklog.transport.send_queue import (
    EncodedResponse,
    SendQueue,
    encoded_size,
    region_bytes,
    release_all,
)


class ResponseQueue:
    """Responses go to the send queue at once unless an earlier one is still pending.

    ``on_ready`` is called soon after the first pending response was completed, once for all
    responses that complete in one turn of the loop.  It must reset ``ready_planned`` and call
    ``put_completed``.
    """

    __slots__ = (
        "_loop",
        "_on_ready",
        "closed",
        "held_bytes",
        "held_region_bytes",
        "out",
        "pending",
        "ready_planned",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], None]) -> None:
        self.closed = False
        self.out: SendQueue | None = None
        #: Pending responses, and completed responses that wait behind them.
        self.pending: deque[PendingResponse] = deque()
        #: Bytes of the completed responses in ``pending``, and the part that is file regions.
        self.held_bytes = 0
        self.held_region_bytes = 0
        self.ready_planned = False
        self._loop = loop
        self._on_ready = on_ready

    def add(self, response: PendingResponse) -> None:
        """Add the response to the next request, pending or completed."""
        if not response.completed:
            response.on_completed = self._completed
            self.pending.append(response)
        elif response.reply is not None:
            self.put(response.reply)

    def put(self, reply: EncodedResponse) -> None:
        """Add the bytes of the response to the next request."""
        if self.closed:
            release_all(reply)
        elif self.pending:
            self._hold(reply)
            self.pending.append(PendingResponse(reply, completed=True))
        elif self.out is not None:
            self.out.put(reply)

    def put_completed(self) -> None:
        """Move the completed responses at the front to the send queue."""
        pending, out = self.pending, self.out
        assert out is not None
        while pending and pending[0].completed:
            reply = pending.popleft().reply
            if reply is not None:
                self.held_bytes -= encoded_size(reply)
                self.held_region_bytes -= region_bytes(reply)
                out.put(reply)

    def close(self) -> None:
        """Release everything; the connection has ended.  May be called twice."""
        self.closed = True
        for response in self.pending:
            release_all(response.reply)
            response.on_completed = _release
        self.pending.clear()
        self.held_bytes = self.held_region_bytes = 0
        self.out = None
        self._on_ready = _nothing

    def _completed(self, response: PendingResponse) -> None:
        if self.closed:
            release_all(response.reply)
            return
        if response.reply is not None:
            self._hold(response.reply)
        if self.pending[0] is response and not self.ready_planned:
            # Many responses complete in one turn of the loop: they are sent together.
            self.ready_planned = True
            self._loop.call_soon(self._on_ready)

    def _hold(self, reply: EncodedResponse) -> None:
        self.held_bytes += encoded_size(reply)
        self.held_region_bytes += region_bytes(reply)


def _release(response: PendingResponse) -> None:
    """Release a response that was completed after its connection had ended."""
    release_all(response.reply)


def _nothing() -> None:
    """The connection has ended."""
