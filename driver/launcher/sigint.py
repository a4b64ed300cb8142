"""The SIGINT handler of the driver: Ctrl-C cancels the user's queries and keeps the brokers.

Owns: the SIGINT handler while a cluster runs.  Must not know which jobs belong to the cluster.
PySpark's own handler cancels all jobs, the brokers' jobs included.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from sparklog.driver.launcher.spark_internals import abandon_call

CANCEL_SECONDS_MAX = 5.0


class SigintGuard:
    """Replaces the SIGINT handler; ``restore()`` puts the old one back.

    Only the main thread can set signal handlers; in other threads ``install`` does nothing.
    """

    def __init__(self, cancel_queries: Callable[[], None]) -> None:
        self._cancel_queries = cancel_queries
        self._previous: signal._HANDLER = None
        self._installed = False

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._installed = True

    def restore(self) -> None:
        """Put the old handler back, unless other code has set another handler since."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        # Bound methods are equal, never identical.
        if self._installed and on_main_thread and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._previous)
            self._installed = False

    def _handle(self, _number: int, frame: FrameType | None) -> NoReturn:
        # This needs a thread of its own: the main thread may be in the middle of a call to the
        # JVM, and its connection must not carry a second call.
        worker = threading.Thread(target=self._cancel_queries, name="cancel-queries", daemon=True)
        worker.start()
        worker.join(CANCEL_SECONDS_MAX)
        abandon_call(frame)
        raise KeyboardInterrupt
