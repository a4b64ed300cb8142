"""The spare supervisors that wait for work, and the work that the launcher gives them.

Owns: the waiting requests and the given work, in memory only: spares ask again, and the launcher
gives the work again.  Must not know the kind of work.
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

#: Longest wait of one request, in milliseconds.
WAIT_MS_MAX: Final = 30_000
#: The pause between two requests of a spare is shorter than this.
GAP_MS_MAX: Final = 1_000
#: A spare that has not asked for this long is forgotten, together with its work.
FORGET_MS: Final = 120_000
SPARES_MAX: Final = 1_000


class SpareSupervisors:
    """The spares of one control plane, by name.

    Args:
        monotonic_ms: a clock that never goes back, in milliseconds.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._now_ms = monotonic_ms
        self._work: dict[str, bytes] = {}
        self._waiting: dict[str, asyncio.Future[AwaitWorkResponse]] = {}
        self._last_request_ms: dict[str, int] = {}
        self._closed = False

    @property
    def spares(self) -> int:
        """The number of spares that wait for work."""
        return len(self._waiting)

    def await_work(
        self, request: AwaitWorkRequest
    ) -> "AwaitWorkResponse | asyncio.Future[AwaitWorkResponse]":
        """The work of a spare.

        Returns:
            The response, or a future of it while the spare has no work.

        Raises:
            KafkaError: too many spares wait already.
        """
        name = request.spare
        self._answer(name)  # ends an older request of the spare, on a connection that it gave up
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
        """Give work to a spare, if the spare is waiting or has just asked."""
        name = request.spare
        last_request_ms = self._last_request_ms.get(name)
        recent = last_request_ms is not None and self._now_ms() - last_request_ms <= GAP_MS_MAX
        asking = name in self._waiting or recent
        if asking:
            self._work[name] = request.work
            self._answer(name)
        return GiveWorkResponse(asking=asking)

    def close(self) -> None:
        """Answer all waiting requests now, and later requests at once."""
        self._closed = True
        for name in list(self._waiting):
            self._answer(name)

    def _answer(self, name: str) -> None:
        future = self._waiting.pop(name, None)
        if future is not None and not future.done():
            if name not in self._work:
                self._last_request_ms[name] = self._now_ms()  # the spare will ask again
            future.set_result(AwaitWorkResponse(work=self._work.get(name, b"")))

    def _forget(self) -> None:
        oldest = self._now_ms() - FORGET_MS
        for name in [name for name, last_ms in self._last_request_ms.items() if last_ms < oldest]:
            del self._last_request_ms[name]
            self._work.pop(name, None)
