"""The server's end of one connection: requests in, responses out in the order of the requests.

Owns: parked and long responses, back pressure, and the end of a connection.  Must not know what a
frame means, nor how connections are accepted (``server.py``).

A client that does not read its responses is not read from.  Its connection holds no more than
``UNSENT_BYTES_MAX`` and one response; without any progress it is idle and will be closed.
``memory_pool.py`` limits the memory of all clients together; cluster members are exempt from it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sparklog.errors import DecodeError, FrameError
from sparklog.transport.channel import Channel
from sparklog.transport.connection_memory import ConnectionMemory
from sparklog.transport.pending_response import ParkedResponse, PendingResponse, SlicedResponse
from sparklog.transport.queued_requests import FREE_BYTES
from sparklog.transport.response_queue import ResponseQueue
from sparklog.transport.send_queue import EncodedResponse
from sparklog.transport.slice_scheduler import TURN_UNITS, Work
from sparklog.wire.framing.frames import FrameDecoder

if TYPE_CHECKING:
    from sparklog.transport.server import Server

logger = logging.getLogger(__name__)

#: Requests of one connection that may wait for their response before reading pauses.
PARKED_REPLIES_MAX = 512

#: The result of handling one request; None sends no response.
HandlerResult: TypeAlias = (
    "EncodedResponse | SlicedResponse | ParkedResponse | PendingResponse | None"
)
#: Called at receipt with frames that arrived together.  A handler takes one or more frames off the
#: left and returns as many answers.  The frames are valid only during the call.
Handler: TypeAlias = "Callable[[ServerConnection, deque[memoryview]], Sequence[HandlerResult]]"


class ServerConnection(Channel):
    """One client of a server.

    ``member`` becomes true when the peer has proved that it belongs to the cluster.  ``number`` is
    higher than that of every connection that the server accepted before.  ``state`` belongs to the
    request handlers.  ``units_spent`` is the cost of the requests of this turn: handlers add to it,
    and after ``TURN_UNITS`` other connections have a turn.
    """

    def __init__(self, server: "Server") -> None:
        decoder = FrameDecoder(server.limits.frame_bytes_max, server.memory.receive)
        super().__init__(decoder)
        self._frame_decoder = decoder
        self.address = ""
        self.number = server.next_connection_number()
        self.state: dict[str, Any] = {}
        self.units_spent = 0
        self._server = server
        self._memory = ConnectionMemory(server.memory, decoder, self._claim_granted, self.abort)
        self._handler = server.handler
        self._was_active = True
        self._idle_checks = 0
        self._frames: deque[memoryview] = deque()
        self._responses = ResponseQueue(self._loop, self._on_responses_ready)
        #: Sliced work that must end before the next request is handled.
        self._work: Work | None = None
        #: Sliced work on responses to parked requests.
        self._finishing: dict[Work, None] = {}
        self._paused = False
        self._ending = False
        self._close_callbacks: list[Callable[[], None]] = []
        self._eof_callbacks: list[Callable[[], None]] = []

    @property
    def member(self) -> bool:
        return self._memory.exempt

    @member.setter
    def member(self, proved: bool) -> None:
        self._memory.exempt = proved

    @property
    def parked(self) -> int:
        """The number of pending responses, and of completed responses behind them."""
        return len(self._responses.pending)

    @property
    def unsent_bytes(self) -> int:
        return self._responses.held_bytes + (self._out.unsent if self._out else 0)

    def call_on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the connection has ended."""
        self._close_callbacks.append(callback)

    def call_on_eof(self, callback: Callable[[], None]) -> None:
        """Call back when the peer sends no more requests; the peer may still read responses."""
        self._eof_callbacks.append(callback)

    def finish(self) -> None:
        """Take no more requests; close once every pending response was sent."""
        if not self._ending and not self.closed:
            self._ending = True
            self._frames.clear()
            self._pause()
            self._close_if_done()

    def admit_member(self) -> None:
        """Make this connection over a limit an ordinary one: its peer has proved membership."""
        self._handler = self._server.handler
        self._server.leave_over_limit(self)

    def use_handler(self, handler: Handler) -> None:
        """Until ``admit_member``, this handler takes the requests; it may raise FrameError."""
        self._handler = handler

    def check_idle(self, checks_max: int) -> None:
        """Close a client that sent and read nothing for ``checks_max`` checks in a row.

        A client that waits for a response or for memory is not idle.
        """
        has_pending = bool(self.parked or self._work) and not (self._out and self._out.unsent)
        if self._was_active or has_pending or self._memory.waits:
            self._was_active = False
            self._idle_checks = 0
            return
        self._idle_checks += 1
        if self._idle_checks >= checks_max:
            self._server.connections_idle += 1
            logger.info("connection of %s closed: it was idle", self.peer)
            self.abort()

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._responses.out = self._out
        name = transport.get_extra_info("peername")
        self.address = name[0] if name else ""
        self._memory.peer = self.peer
        if not self._server.admit(self):
            self.abort()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ending or self.closed:
            return
        assert self._work is None, "a connection is not read from while it works on a request"
        self._server.bytes_received += nbytes
        self._was_active = True
        try:
            frames = self._decoder.buffer_updated(nbytes)
        except (FrameError, OSError) as error:  # OSError: there is no memory for a large frame
            self._refuse(error)
            return
        if frames:
            self._frames.extend(frames)
            self._pump()
        elif self._frame_decoder.unfinished_bytes > FREE_BYTES:
            self._claim_memory()

    def eof_received(self) -> bool:
        # The peer may have closed only its half: earlier requests still get responses.
        self._ending = True
        for callback in self._eof_callbacks:
            callback()
        self._close_if_done()
        return not self.closed

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._server.forget(self)
        self._release_memory()
        callbacks, self._close_callbacks = self._close_callbacks, []
        self._eof_callbacks.clear()
        for callback in callbacks:
            callback()
        self.state.clear()

    def abort(self) -> None:
        super().abort()
        self._release_memory()

    def _release_memory(self) -> None:
        """Release the memory of requests and responses."""
        self._responses.close()
        self._frames.clear()
        for work in (*self._finishing, *((self._work,) if self._work else ())):
            work.cancel()
        self._finishing.clear()
        self._work = None
        self._memory.close()

    # requests in

    def _claim_memory(self) -> None:
        """Pause reading an unfinished frame until there is memory for it."""
        self._memory.claim()
        if self._memory.waits and self._transport is not None:
            self._transport.pause_reading()

    def _claim_granted(self) -> None:
        if not self._paused and not self._ending and self._transport is not None:
            self._transport.resume_reading()

    def _pump(self) -> None:
        """Handle frames until none is left, responses pile up or other connections have a turn."""
        try:
            while True:
                more = self._handle_frames()
                self._flush()
                if self.closed:
                    return
                if not more:
                    decoder = self._frame_decoder
                    if self._memory.claimed_bytes:
                        self._memory.frame_arrived()
                    if decoder.used is not None or self._memory.held_request_bytes:
                        self._memory.release_requests()
                    self._resume()
                    if decoder.unfinished_bytes > FREE_BYTES:
                        self._claim_memory()
                    self._close_if_done()
                    return
                if self._overloaded(1) or self._work is not None:
                    self._pause()
                    self._frames = self._memory.hold_requests(self._frames)
                    if self._memory.claimed_bytes:  # sliced work does not need all of it
                        self._memory.frame_arrived()
                    return
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, (FrameError, DecodeError)):
            self._refuse(error)
            return
        logger.error(
            "connection of %s closed: a request could not be handled", self.peer, exc_info=error
        )
        self.abort()

    def _refuse(self, error: Exception) -> None:
        self._flush()  # earlier requests still get responses
        if self._handler is not self._server.handler:
            self._server.refuse(self, str(error))
        else:
            self._server.frames_refused += 1
            logger.warning("connection of %s closed: %s", self.peer, error)
        self.abort()

    def _handle_frames(self) -> bool:
        """Handle frames of one turn; True when frames are left or one is handled in slices."""
        frames = self._frames
        add = self._responses.add
        self.units_spent = 0
        while frames:
            for answer in self._handler(self, frames):
                if isinstance(answer, PendingResponse):  # the case of most produce requests
                    add(answer)
                else:
                    self._take(answer)
            if self.closed:
                return False
            if self._overloaded(1) or self._work is not None:
                return True
            if self.units_spent > TURN_UNITS and frames:
                self._work = self._server.scheduler.add_pause(self._slices_ended)
                return True
        return False

    def _take(self, answer: HandlerResult) -> None:
        if isinstance(answer, PendingResponse):
            self._responses.add(answer)
        elif isinstance(answer, ParkedResponse):
            self._park(answer)
        elif isinstance(answer, SlicedResponse):
            self._begin_slices(answer)
        elif answer is not None:
            self._responses.put(answer)

    def _begin_slices(self, answer: SlicedResponse) -> None:
        """Make a response in slices; the next request is handled when this work has ended."""
        assert self._work is None, "a sliced response is the last one of a call"
        self._work = self._server.scheduler.add(
            answer.slices, self._slices_ended, member=self.member
        )
        self._memory.begin_slices(answer.request_bytes)

    def _slices_ended(self, work: Work) -> None:
        self._work = None
        self._memory.end_slices()
        if work.error is not None:
            self._fail(work.error)
        else:
            self._take(work.result)
            self._flush()
            self._handle_more_or_close(1)

    def _overloaded(self, divisor: int) -> bool:
        responses, out = self._responses, self._out
        unsent_bytes = responses.held_bytes + (out.unsent if out is not None else 0)
        return (
            len(responses.pending) * divisor >= PARKED_REPLIES_MAX
            or unsent_bytes * divisor >= self._server.memory.unsent_bytes_max
        )

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._ending and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # responses out

    def _park(self, parked: ParkedResponse) -> None:
        future = asyncio.ensure_future(parked.awaitable)
        reply = parked.finish(future) if future.done() else None
        if future.done() and not isinstance(reply, SlicedResponse):
            self._take(reply)  # sent with the other responses of this turn
            return
        response = PendingResponse()
        self._responses.add(response)
        if isinstance(reply, SlicedResponse):
            self._complete(response, reply)
        else:
            response.future = future
            future.add_done_callback(partial(self._unpark, response, parked.finish))

    def _unpark(
        self,
        response: PendingResponse,
        finish: "Callable[[asyncio.Future[Any]], EncodedResponse | SlicedResponse | None]",
        future: "asyncio.Future[Any]",
    ) -> None:
        try:
            reply = finish(future)
        except Exception as error:
            self._fail(error)
            return
        response.future = None
        self._complete(response, reply)

    def _complete(
        self, response: PendingResponse, reply: EncodedResponse | SlicedResponse | None
    ) -> None:
        if not isinstance(reply, SlicedResponse):
            response.complete(reply)
        elif not self.closed:
            finished = partial(self._finished, response)
            work = self._server.scheduler.add(reply.slices, finished, member=self.member)
            self._finishing[work] = None

    def _finished(self, response: PendingResponse, work: Work) -> None:
        """Complete the response to a parked request, which was made in slices."""
        del self._finishing[work]
        if work.error is not None:
            self._fail(work.error)
        else:
            response.complete(work.result)

    def _on_responses_ready(self) -> None:
        self._responses.ready_planned = False
        self._flush()
        self._handle_more_or_close(1)

    def _handle_more_or_close(self, divisor: int) -> None:
        """Handle more requests after responses were sent, or close."""
        if self.closed:
            return
        may_pump = self._paused and self._work is None and (self._frames or not self._ending)
        if may_pump and not self._overloaded(divisor):
            self._pump()
        else:
            self._close_if_done()

    def _flush(self) -> None:
        out = self._out
        if out is None or self.closed:
            return
        responses = self._responses
        if responses.pending and responses.pending[0].completed:
            responses.put_completed()
        if out.unsent:
            before = out.unsent
            out.flush()
            sent = before - out.unsent
            if sent > 0:
                self._server.bytes_sent += sent
                self._memory.sent_bytes += sent
                self._was_active = True
        held_bytes = responses.held_bytes
        if out.unsent or held_bytes or self._memory.counted_bytes:
            regions = responses.held_region_bytes + out.unsent_regions
            self._memory.count_unsent(held_bytes + out.unsent - regions)

    def _writable(self) -> None:
        self._flush()
        self._handle_more_or_close(2)

    def _close_if_done(self) -> None:
        if not self._ending or self.closed:
            return
        if not (self.parked or self._work is not None or self._frames or self.unsent_bytes):
            self.closed = True
            if self._transport is not None:
                self._transport.close()
