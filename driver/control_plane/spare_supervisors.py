"""Where spare supervisors wait for work, and the launcher leaves it for them.

Owns: who asks, and what was given, in memory: spares ask again, and the launcher gives again.  Must
not know what work is.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.protocol.private import (
    AwaitWorkRequest,
    AwaitWorkResponse,
    GiveWorkRequest,
    GiveWorkResponse,
)

#: Longest wait of one request.
WAIT_MS_MAX: Final = 30_000
#: Between two of its requests a spare is away for less than that.
GAP_MS_MAX: Final = 1_000
#: Spares that did not ask for so long are forgotten, with what was given to them.
FORGET_MS: Final = 120_000
SPARES_MAX: Final = 1_000


class SpareSupervisors:
    """One control plane's; everything by the names of spares."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._now_ms = monotonic_ms
        self._work: dict[str, bytes] = {}
        self._waiting: dict[str, asyncio.Future[AwaitWorkResponse]] = {}
        self._last_request_ms: dict[str, int] = {}
        self._closed = False

    @property
    def spares(self) -> int:
        """Spares that wait for work."""
        return len(self._waiting)

    def await_work(
        self, request: AwaitWorkRequest
    ) -> "AwaitWorkResponse | asyncio.Future[AwaitWorkResponse]":
        """The work of a spare; waits while there is none."""
        name = request.spare
        self._answer(name)  # a request of a connection that it has given up
        self._forget()
        if name not in self._last_request_ms and len(self._last_request_ms) >= SPARES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{SPARES_MAX} spares wait already")
        self._last_request_ms[name] = self._now_ms()
        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        if name in self._work or wait_ms <= 0 or self._closed:
            return AwaitWorkResponse(work=self._work.get(name, b""))
        loop = asyncio.get_running_loop()
        future = self._waiting[name] = loop.create_future()
        timer = loop.call_later(wait_ms / 1000, self._answer, name)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def give_work(self, request: GiveWorkRequest) -> GiveWorkResponse:
        """Work for a spare that is asking."""
        name = request.spare
        last_request_ms = self._last_request_ms.get(name)
        recent = last_request_ms is not None and self._now_ms() - last_request_ms <= GAP_MS_MAX
        asking = name in self._waiting or recent
        if asking:
            self._work[name] = request.work
            self._answer(name)
        return GiveWorkResponse(asking=asking)

    def close(self) -> None:
        """Answer everyone who waits, now and from now on."""
        self._closed = True
        for name in list(self._waiting):
            self._answer(name)

    def _answer(self, name: str) -> None:
        future = self._waiting.pop(name, None)
        if future is not None and not future.done():
            if name not in self._work:
                self._last_request_ms[name] = self._now_ms()  # it will ask again
            future.set_result(AwaitWorkResponse(work=self._work.get(name, b"")))

    def _forget(self) -> None:
        oldest = self._now_ms() - FORGET_MS
        for name in [name for name, last_ms in self._last_request_ms.items() if last_ms < oldest]:
            del self._last_request_ms[name]
            self._work.pop(name, None)
