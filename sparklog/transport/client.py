"""The client's end of a connection: pipelined requests, responses in the same order.

Owns: opening a connection, pairing responses with requests, and the bound on requests in flight.
Must not know what a frame means.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sparklog.errors import ConnectError, FrameError
from sparklog.transport.channel import UNSENT_BYTES_MAX, Channel
from sparklog.transport.limits import DEFAULT_FRAME_BYTES_MAX
from sparklog.transport.wire import Buffer
from sparklog.types import Endpoint
from sparklog.wire.framing.owned_frames import OwnedFrameDecoder

#: Called with the memory of a response, or with the error in its place; must not raise.
OnResponse: TypeAlias = Callable[[memoryview | ConnectError], None]

#: Requests in flight of one connection; further ones wait.
IN_FLIGHT_MAX = 256


class ClientConnection(Channel):
    """The client's end of one connection."""

    def __init__(self, endpoint: Endpoint, frame_bytes_max: int) -> None:
        self._frames = OwnedFrameDecoder(frame_bytes_max)
        super().__init__(self._frames)
        self.endpoint = endpoint
        self._waiting: deque[asyncio.Future[memoryview] | OnResponse] = deque()
        self._blocked: deque[asyncio.Future[None]] = deque()
        self._error: str | None = None
        self._loss_callbacks: list[Callable[[], None]] = []

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def request(self, payload: Sequence[Buffer]) -> memoryview:
        """Send one frame and return the response, whose memory the caller owns.

        Raises ConnectError when the connection is lost before the response.  A cancelled request
        leaves the connection usable: its response is dropped when it arrives.
        """
        await self._room()
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting.append(answer)
        self._put(payload)
        return await answer

    def ask(self, payload: Sequence[Buffer], on_response: OnResponse) -> None:
        """Send one frame; ``on_response`` is called with the response at receipt, or with the loss.

        Use ``ask`` for few and small requests, because their number is not bounded.  Raises
        ConnectError when the connection is lost already.
        """
        if self.closed or self._out is None:
            raise self._lost()
        self._waiting.append(on_response)
        self._put(payload)

    async def send(self, payload: Sequence[Buffer]) -> None:
        """Send one frame that gets no response.  Raises ConnectError."""
        await self._room()
        self._put(payload)

    def give_back(self, answer: memoryview) -> None:
        """Reuse the memory of a response, which the caller and its views use no more."""
        self._frames.give_back(answer)

    def call_on_loss(self, callback: Callable[[], None]) -> None:
        """Call back when the peer closes the connection, before anything else that arrived."""
        self._loss_callbacks.append(callback)

    def close(self) -> None:
        """Close; requests in flight fail."""
        self._loss_callbacks.clear()
        self._fail("closed by this side")
        self.abort()

    # called by asyncio

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._decoder.buffer_updated(nbytes):
                if not self._waiting:
                    raise FrameError("a response that nobody asked for")
                answer = self._waiting.popleft()
                if not isinstance(answer, asyncio.Future):
                    answer(frame)
                    if self.closed:
                        return
                elif not answer.done():
                    answer.set_result(frame)
        except FrameError as error:
            self._fail(str(error))
            self.abort()
            return
        self._unblock()

    def eof_received(self) -> None:
        self._tell_loss()

    def connection_lost(self, error: Exception | None) -> None:
        self._tell_loss()
        super().connection_lost(error)
        self._fail(str(error) if error else "closed by the peer")

    def _tell_loss(self) -> None:
        callbacks, self._loss_callbacks = self._loss_callbacks, []
        for callback in callbacks:
            callback()

    def _put(self, payload: Sequence[Buffer]) -> None:
        assert self._out is not None
        self._out.put(payload)
        self._out.flush()

    async def _room(self) -> None:
        while True:
            if self.closed or self._out is None:
                raise self._lost()
            if len(self._waiting) < IN_FLIGHT_MAX and self._out.unsent < UNSENT_BYTES_MAX:
                return
            turn: asyncio.Future[None] = self._loop.create_future()
            self._blocked.append(turn)
            await turn

    def _unblock(self) -> None:
        while self._blocked:
            turn = self._blocked.popleft()
            if not turn.done():
                turn.set_result(None)

    def _writable(self) -> None:
        if self._out is not None:
            self._out.flush()
        self._unblock()

    def _send_failed(self, error: OSError) -> None:
        self._fail(str(error))
        super()._send_failed(error)

    def _fail(self, reason: str) -> None:
        self._error = self._error or reason
        while self._waiting:
            answer = self._waiting.popleft()
            if not isinstance(answer, asyncio.Future):
                answer(self._lost())
            elif not answer.done():
                answer.set_exception(self._lost())
        self._unblock()

    def _lost(self) -> ConnectError:
        return ConnectError(f"connection to {self.endpoint} lost: {self._error or 'not open'}")


async def connect(
    endpoint: Endpoint, timeout_s: float, *, max_frame_bytes: int = DEFAULT_FRAME_BYTES_MAX
) -> ClientConnection:
    """Open a connection.  Raises ConnectError naming the endpoint and the reason."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):  # wait_for would lose a cancellation that comes late
            _, connection = await loop.create_connection(
                lambda: ClientConnection(endpoint, max_frame_bytes), endpoint.host, endpoint.port
            )
    except TimeoutError:
        raise ConnectError(f"{endpoint} did not accept within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectError(f"{endpoint} cannot be reached: {error}") from error
    return connection
