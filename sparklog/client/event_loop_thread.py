"""An event loop in a daemon thread, for code that blocks.

Owns: the thread, and its state after a fork.  Must not know the code on the loop.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sparklog.errors import ConnectError, ErrorCode, KafkaError

T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 60.0
#: Time in seconds that a call may take beyond the deadline that the coroutine keeps itself.
GRACE_S: Final = 5.0


class EventLoopThread:
    """An event loop in a daemon thread, and blocking calls into it.

    The thread works only in the process that made it; after a fork its methods raise ConnectError.
    """

    def __init__(self, name: str = "sparklog-client") -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Start a coroutine; its result comes through the future.  Raises ConnectError."""
        try:
            self._check_usable()
        except ConnectError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop; the function must not raise.  Raises ConnectError."""
        self._check_usable()
        self.loop.call_soon_threadsafe(function, *arguments)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = DEFAULT_TIMEOUT_S) -> T:
        """Run a coroutine; see ``result``."""
        return self.result(self.submit(coroutine), timeout_s)

    def result(
        self, future: "concurrent.futures.Future[T]", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> T:
        """Wait for a submitted coroutine; cancel it when it is stuck beyond the deadline.

        Coroutines keep their own deadlines, so ``timeout_s`` is extended by ``GRACE_S``.  Raises
        KafkaError(REQUEST_TIMED_OUT).
        """
        try:
            return future.result(timeout_s + GRACE_S)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # raised by the coroutine
            future.cancel()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no answer within {timeout_s:g} s"
            ) from None
        except BaseException:
            future.cancel()  # such as KeyboardInterrupt
            raise

    def close(self) -> None:
        """Stop the loop and its thread.  May be called twice; does nothing after a fork."""
        if self.pid == os.getpid() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(GRACE_S)

    def _check_usable(self) -> None:
        if self.pid != os.getpid():
            raise ConnectError(
                "this client was made in another process; make one in the process that uses it"
            )
        if self.loop.is_closed():
            raise ConnectError("this client is closed")

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()


_lock = threading.Lock()
_shared: EventLoopThread | None = None
#: Loops of the parent process: their garbage collection would touch shared sockets.
_inherited: list[EventLoopThread] = []


def shared_event_loop_thread() -> EventLoopThread:
    """The event loop thread of this process, made on first use and never closed."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = EventLoopThread()
        return _shared


def _after_fork() -> None:
    global _shared, _lock
    _lock = threading.Lock()
    if _shared is not None:
        _inherited.append(_shared)
        _shared = None


os.register_at_fork(after_in_child=_after_fork)
