"""Losses of brokers, reported together when they come together.

Owns: gathering what one executor took with it into one report, and trying again while the control
plane is away.  Must not know why brokers are lost.

One report is one commit: none of the brokers that died together is elected in another's place.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from sparklog.errors import ConnectError

#: The keepers of one executor's brokers hear of its loss within that.
GATHER_SECONDS = 0.02
RETRY_SECONDS = 0.1
#: After so long sessions run out by themselves.
REPORT_SECONDS_MAX = 10.0


class LossReportBatcher:
    """``send`` reports broker ids to the control plane and raises SparklogError."""

    def __init__(self, send: Callable[[tuple[int, ...]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[int, Future[None]] = {}
        self._sending = False

    def report(self, broker_id: int) -> None:
        """Returns when it is reported.  Raises SparklogError."""
        with self._lock:
            future = self._pending.setdefault(broker_id, Future())
            sends = not self._sending
            self._sending = True
        if sends:
            self._send_pending()
        future.result()

    def _send_pending(self) -> None:
        """What was gathered, and what came in the meantime."""
        while True:
            time.sleep(GATHER_SECONDS)
            with self._lock:
                batch, self._pending = self._pending, {}
            try:
                self._deliver(tuple(sorted(batch)))
            except BaseException as error:
                for future in batch.values():
                    future.set_exception(error)
            else:
                for future in batch.values():
                    future.set_result(None)
            with self._lock:
                self._sending = bool(self._pending)
                if not self._sending:
                    return

    def _deliver(self, broker_ids: tuple[int, ...]) -> None:
        end = time.monotonic() + REPORT_SECONDS_MAX
        while True:
            try:
                return self._send(broker_ids)
            except ConnectError:  # it may be restarting
                if time.monotonic() > end:
                    raise
                time.sleep(RETRY_SECONDS)
